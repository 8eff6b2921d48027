"""Replaces the Python interpreter: passes its arguments to the fork server, and lives and dies with the
forked process. It needs only the standard library, so that it starts in milliseconds.

    python -I -S fork_client.py SOCKET PYTHON [what PYTHON would be called with ...]
"""

import json
import os
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
HEADER = struct.Struct("!I")
REPLY = struct.Struct("!i")


def inherited_descriptors() -> list[int]:
    """Return the descriptors that a program started from here would inherit."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            if os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def receive(connection: socket.socket) -> int | None:
    """Return the server's next number; None if the server is gone."""
    data = b""
    while len(data) < REPLY.size:
        part = connection.recv(REPLY.size - len(data))
        if not part:
            return None
        data += part
    return int(REPLY.unpack(data)[0])


def forward_signals(pid: int) -> None:
    """Forward signals. They are blocked and waited for here, so no other wait delays them."""
    while True:
        number = signal.sigwait(FORWARDED)
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> None:
    address, python, *arguments = sys.argv[1:]
    descriptors = inherited_descriptors()
    connection = socket.socket(socket.AF_UNIX)
    # multiprocessing's resource tracker must outlive all others, to clean up after them.
    is_tracker = any("multiprocessing.resource_tracker" in argument for argument in arguments)
    # Without a server, for whatever reason, run Python itself.
    if is_tracker or connection.connect_ex(address) != 0:
        connection.close()
        os.execv(python, [python, *arguments])
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    message = json.dumps(request | {"descriptors": descriptors}).encode()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    socket.send_fds(connection, [HEADER.pack(len(message))], descriptors)
    connection.sendall(message)
    pid = receive(connection)
    if pid is None:
        sys.exit("the fork server is gone")
    threading.Thread(target=forward_signals, args=(pid,), daemon=True).start()
    for descriptor in descriptors:
        os.close(descriptor)  # a reader must see the end of the forked process, not of this one
    status = receive(connection)
    if status is None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os._exit(1)
    if os.WIFSIGNALED(status):
        last = os.WTERMSIG(status)
        if last in FORWARDED:
            signal.signal(last, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {last})
        os.kill(os.getpid(), last)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

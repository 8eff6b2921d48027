"""``seele view``: a run's rollouts in a browser."""

import socket
from pathlib import Path
from typing import Annotated

import typer

from seele.errors import ConfigError

LOCAL = ("127.0.0.1", "localhost", "::1")


def view_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN [OTHER]", help="Run folder; give two or more to compare.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on. Anyone who can reach it can read the rollouts.")
    ] = LOCAL[0],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8420,
    own_parts: Annotated[
        bool, typer.Option("--own-parts", help="Import a run's own controller, for its curves.")
    ] = False,
) -> None:
    """Serve a run's rollouts as web pages, during or after the run.

    Raises:
        CheckpointError: If RUN is not a run folder.
        ConfigError: If the port is taken, or the address is empty or not this machine's.
    """
    if not host:
        raise ConfigError("--host: got an empty address, which is every address of this machine; name one")
    import uvicorn

    from seele.report.browser.app import build_app, keep_indexed
    from seele.report.browser.run import view_runs

    viewed = view_runs(runs, own_parts=own_parts)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError as error:
            raise ConfigError(f"--host {host} --port {port}: {error.strerror}; try --port 0") from error
        stop = keep_indexed(viewed)
        name = f"[{host}]" if ":" in host else host
        typer.echo(
            f"http://{name}:{listener.getsockname()[1]}/ shows {', '.join(each.name for each in viewed)}"
        )
        # A browser asks for an address of version 6 with its brackets.
        hosts = [*LOCAL, "[::1]"] if host in LOCAL else ["*"]
        config = uvicorn.Config(build_app(viewed, hosts=hosts), log_level="warning", access_log=False)
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            stop.set()

"""One copy of the model for ``seele_eval.parallel``: reads a job as one line, writes a line per response."""

import json
import os
import sys
from pathlib import Path

from seele_eval.command import end_with_standard_input
from seele_eval.generation import EngineSettings, generate
from seele_eval.prompts import Prompt


def main() -> None:
    """Read the job from standard input, generate, and write responses as they come."""
    job = json.loads(sys.stdin.readline())
    end_with_standard_input()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Libraries' output must not mix with the responses.
    os.dup2(2, 1)
    prompts = [Prompt(**prompt) for prompt in job["prompts"]]
    for index, response in generate(Path(job["model"]), prompts, EngineSettings(**job["settings"])):
        reply = {"index": index, "text": response.text, "num_tokens": response.num_tokens}
        replies.write(json.dumps(reply | {"finish": response.finish}) + "\n")
        replies.flush()
    # vLLM's threads may not end on their own.
    os._exit(0)


if __name__ == "__main__":
    main()

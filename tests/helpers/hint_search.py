"""Commands that search for hints, with a made-up model in the place of an engine."""

from seele.data.storage.schema import write_problems
from seele.records import Finish
from seele_eval import hint_search
from seele_eval.prompts import Response


class MadeUpModel:
    """Solves a problem with so many steps of its solution shown, with its second sample."""

    right = "\\boxed{7}"

    def __init__(self, **steps_needed):
        self.steps_needed, self.asked = steps_needed, []

    def read(self, request):
        """The name of a request's problem, and how many steps it shows."""
        return request.question.rstrip("?"), request.hint_steps

    def __call__(self, requests):
        for index, request in enumerate(requests):
            name, shown = self.read(request)
            self.asked.append((name, shown))
            is_right = shown >= self.steps_needed[name] and index % 2
            text = self.right if is_right else "\\boxed{8}"
            yield index, Response(text=text, num_tokens=9, finish=Finish.STOP)


def drawer(command, problems, out, monkeypatch):
    """Run the command with a model and further options; return what it says and the file that it writes."""
    folder = out.parent
    monkeypatch.setattr(hint_search, "find_weights", lambda path: [folder / "weights"])
    (folder / "weights").write_text("w")
    file = folder / "problems.parquet"
    write_problems(file, problems, split="train")

    def drawn(model, *further):
        arguments = [str(file), "--model", str(folder), "--out", str(out), "--samples", "2", *further]
        return command.sample(command.parse(arguments), complete=model), out

    return drawn

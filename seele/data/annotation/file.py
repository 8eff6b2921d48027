"""One annotation: from a file of problems to a file with the texts that were kept, and its manifest."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from seele.data.annotation.annotate import Annotation, Outcome
from seele.data.annotation.calls import Annotator, Task
from seele.data.annotation.cost import Budget, Forecast, Prices, forecast
from seele.data.annotation.ledger import CallLedger
from seele.data.annotation.reply import Judge, Rejection
from seele.data.annotation.report import (
    Maker,
    Tally,
    describe_costs,
    describe_settings,
    forecast_text,
    summary_text,
)
from seele.data.storage.files import check_output, file_sha256, manifest_beside, write_manifest
from seele.data.storage.schema import read_problems
from seele.endpoint import Patience
from seele.errors import ConfigError, DataError
from seele.records import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationOrder:
    """What to annotate, by which annotator, and at what cost."""

    file: Path
    out: Path
    calls: Path
    """The ledger; several orders may share it, one after another."""
    annotator: Annotator
    prices: Prices
    max_cost: float | None = None
    """Most that may be spent on this model in total; None means 0, or no limit if ``may_exceed``."""
    may_exceed: bool = False
    """True to start even if the expected cost exceeds the limit."""

    def __post_init__(self) -> None:
        check_output(self.file, self.out)
        if self.calls.resolve() in {each.resolve() for each in (self.file, self.out, self.manifest)}:
            raise ConfigError(
                f"--calls {self.calls}: is the file of problems, --out or its manifest; name another file"
            )
        if self.max_cost is not None and not self.max_cost >= 0.0:
            raise ConfigError(f"--max-cost must be 0 or above, got {self.max_cost}")
        if self.max_cost is not None and not self.prices.are_given:
            raise ConfigError("--max-cost needs --price-in or --price-out: without prices calls cost nothing")

    @property
    def manifest(self) -> Path:
        """Path of the manifest beside the file; written last, so it marks the file as complete."""
        return manifest_beside(self.out, self.file)

    @property
    def limit(self) -> float:
        """Most that may be spent."""
        if self.max_cost is not None:
            return self.max_cost
        return math.inf if self.may_exceed else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """How an annotation ended."""

    text: str
    is_complete: bool
    """True if the budget covered every problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedAnnotation:
    """A checked order, and its forecast."""

    order: AnnotationOrder
    instances: tuple[Instance, ...]
    tasks: tuple[Task, ...]
    """The task of each instance; equal tasks are asked once."""
    ledger: CallLedger
    judge: Judge
    expected: Forecast

    @property
    def forecast_text(self) -> str:
        """What is left to ask, and what it may cost."""
        account = self.ledger.account(self.order.annotator.model)
        return forecast_text(self.expected, account, self.order.prices)

    @property
    def num_tasks(self) -> int:
        """Number of distinct tasks."""
        return self.expected.tasks

    def check_cost(self) -> None:
        """Refuse an order that is expected to cost more than is allowed.

        Raises:
            ConfigError: If it is.
        """
        order = self.order
        total = self.expected.cost + order.prices.spent(self.ledger.account(order.annotator.model))
        if self.expected.cost and total > order.limit and not order.may_exceed:
            raise ConfigError(
                f"the expected total of {total:.2f} is more than may be spent ({order.limit:.2f}): raise "
                "--max-cost, or start anyway with --yes; with --max-cost, the run then stops at that amount "
                "and continues once it is raised"
            )

    def annotate(
        self,
        make: Maker,
        *,
        patience: Patience,
        concurrency: int,
        on_outcome: Callable[[Outcome], None],
        grader_name: str | None = None,
    ) -> Report:
        """Ask, then write the file and its manifest.

        Args:
            make: Makes the output from the replies.
            patience: How long to retry the server.
            concurrency: Number of concurrent requests.
            on_outcome: Called as outcomes arrive.
            grader_name: Name for the manifest of the grader that decides what is kept, if any.

        Raises:
            RefusedError: If the server rejects all requests of this kind.
            DataError: If the server does not reply, or no reply was kept; nothing is written then.
        """
        order, ledger = self.order, self.ledger
        spent = order.prices.spent(ledger.account(order.annotator.model))
        annotation = Annotation(
            annotator=order.annotator,
            ledger=ledger,
            judge=self.judge,
            prices=order.prices,
            budget=Budget(order.prices, limit=order.limit, spent=spent),
            patience=patience,
        )
        with ledger:
            outcomes = annotation.run(
                dict.fromkeys(self.tasks), concurrency=concurrency, on_outcome=on_outcome
            )
        output = make(order.file, self.instances, self.tasks, outcomes)
        counts = output.counts
        account = ledger.account(order.annotator.model)
        text = summary_text(counts, account, order.prices, outcomes.values())
        if not counts.kept:
            raise DataError(f"{order.out}: not written, because no reply was kept.\n{text}")
        order.manifest.unlink(missing_ok=True)
        output.write(order.out)
        self._write_manifest(counts, grader_name)
        return Report(f"{text}\n{order.out}", is_complete=Rejection.BUDGET.value not in counts.problems)

    def _write_manifest(self, counts: Tally, grader_name: str | None) -> None:
        order = self.order
        manifest = {
            "file": order.out.name,
            "sha256": file_sha256(order.out),
            "source": {"file": order.file.name, "sha256": file_sha256(order.file)},
            "settings": describe_settings(order.annotator, grader=grader_name),
            "served_as": self.ledger.served_as(order.annotator.model),
            **{name: value for name, value in asdict(counts).items() if value is not None},
            "paid": describe_costs(self.ledger.account(order.annotator.model), order.prices),
        }
        write_manifest(order.manifest, manifest)


def prepare(order: AnnotationOrder, judge: Judge, *, reply_tokens: int) -> PreparedAnnotation:
    """Read the problems and the ledger. Nothing is asked or changed.

    Args:
        order: The order.
        judge: Decides which replies are kept.
        reply_tokens: Expected length of a reply in tokens, for the forecast.

    Raises:
        DataError: As in ``seele.data.storage.schema.read_problems``.
        CheckpointError: If the ledger is damaged.
    """
    instances = tuple(read_problems(order.file))
    tasks = tuple(map(order.annotator.task, instances))
    ledger = CallLedger(order.calls)
    different = list(dict.fromkeys(tasks))
    return PreparedAnnotation(
        order=order,
        instances=instances,
        tasks=tasks,
        ledger=ledger,
        judge=judge,
        expected=forecast(different, order.annotator, ledger, judge, order.prices, reply_tokens=reply_tokens),
    )

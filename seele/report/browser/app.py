"""The pages of ``seele view``. The address holds the whole state: what is open, filtered and sorted.

Every value that a page is given is escaped. Scripts and styles come from this package, and the page's policy
forbids the browser to load anything else.
"""

import math
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import groupby
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from seele.records import GradeReason
from seele.report.browser.colours import COLOURS, coloured
from seele.report.browser.drawings import FittedCurve, draw_curve
from seele.report.browser.history import page_in_work
from seele.report.browser.rollouts import NOT_CORRECT, ORDERS, Filters, ShownProblem, filter_problems
from seele.report.browser.run import ViewedRun
from seele.report.page import render_template

PER_PAGE = 50
POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
POLICY += "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
INDEX_PERIOD_S = 5.0
Number = TypeVar("Number", int, float)


class _BadQuery(Exception):
    """A query that asks for something impossible."""


def build_app(runs: Sequence[ViewedRun], *, hosts: Sequence[str]) -> Starlette:
    """Return the application.

    Args:
        runs: One run, or several to compare.
        hosts: Host names that a browser may ask for; others are refused, so that pages of other sites cannot
            read what is served here.
    """
    pages = Pages(runs)
    routes = {"/": pages.step, "/problem": pages.problem, "/compare": pages.compare, "/live": pages.live}
    return Starlette(
        routes=[
            *(Route(path, _ahead_of_index(page)) for path, page in routes.items()),
            *(Route(f"/{name}", _static(name, kind)) for name, kind in STATIC.items()),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={_BadQuery: _bad_query},
    )


def _ahead_of_index(page: Callable[[Request], Response]) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:
        with page_in_work():
            return page(request)

    return respond


def keep_indexed(runs: Sequence[ViewedRun]) -> threading.Event:
    """Index the runs' steps, including later ones, in the background until the returned event is set.

    After an error, such as a full disk, the next period tries again: pages say how many steps are indexed.
    """
    stop = threading.Event()

    def update() -> None:
        while True:
            for run in runs:
                # Whatever a run's files hold, the others are indexed.
                with suppress(Exception):
                    run.history.update()
            if stop.wait(INDEX_PERIOD_S):
                return

    threading.Thread(target=update, name="index", daemon=True).start()
    return stop


class Pages:
    """Responses to the addresses."""

    def __init__(self, runs: Sequence[ViewedRun]) -> None:
        self._runs = runs

    def step(self, request: Request) -> Response:
        """A step of a run: timeline, filters, one row per problem, and the open problem's rollouts."""
        query = _Query(request)
        # Before anything is read, so that the page follows what is written meanwhile.
        state = self._state()
        run, steps, step = self._run_and_step(query)
        filters = query.filters()
        problems = run.step(step)
        chosen = filter_problems(problems, filters, order=query.one_of("sort", tuple(ORDERS)))
        shown = query.exact("open")
        page, pages = _page_of([each.first.instance_id for each in chosen], shown, query)
        open_problem = run.problem(step, shown)
        return _page(
            "browser/step.html",
            query,
            run=run,
            runs=self._runs,
            timeline=run.timeline(step),
            steps=steps,
            step=step,
            neighbours=_neighbours(steps, step),
            state="" if query.text("step") else state,
            filters=filters,
            problems=chosen[(page - 1) * PER_PAGE : page * PER_PAGE],
            num_chosen=len(chosen),
            num_problems=len(problems),
            page=page,
            pages=pages,
            open_problem=open_problem,
            fitted=_fitted(run, shown) if open_problem else None,
            solution=run.solution(step, shown) if open_problem else (),
            **_choices(problems),
        )

    def problem(self, request: Request) -> Response:
        """A problem's rounds in all steps."""
        query = _Query(request)
        run, steps, step = self._run_and_step(query)
        instance_id = query.exact("id")
        rounds = run.history.of_problem(instance_id)
        by_step = {number: list(group) for number, group in groupby(rounds, key=lambda each: each.step)}
        return _page(
            "browser/problem.html",
            query,
            run=run,
            instance_id=instance_id,
            problem=run.problem(step if step in by_step else max(by_step, default=step), instance_id),
            by_step=by_step,
            fitted=_fitted(run, instance_id),
            indexed=run.history.num_steps(),
            num_steps=len(steps),
        )

    def compare(self, request: Request) -> Response:
        """The same step in two runs, side by side: problems of which a response passes the filters."""
        query = _Query(request)
        if len(self._runs) < 2:
            raise _BadQuery("only one run is served; seele view RUN OTHER compares two")
        # As in ``step``.
        state = self._state()
        runs = self._run(query, "run", default=0), self._run(query, "other", default=1)
        if runs[0] is runs[1]:
            raise _BadQuery("run and other are the same run; give two numbers, as in run=0&other=1")
        shared = sorted(set(runs[0].steps()) & set(runs[1].steps()))
        step = query.number("step", int) or (shared[-1] if shared else 0)
        sides = [{each.first.instance_id: each for each in run.step(step)} for run in runs]
        shared_problems = sides[0].keys() & sides[1].keys()
        filters, order = query.filters(), query.one_of("sort", tuple(ORDERS))
        problems = [each for side in sides for each in side.values()]
        passing = {each.first.instance_id for each in filter_problems(problems, filters, order="")}
        ordered = filter_problems(list(sides[0].values()), Filters(), order=order)
        names = [name for each in ordered if (name := each.first.instance_id) in shared_problems & passing]
        shown = query.exact("open")
        page, pages = _page_of(names, shown, query)
        return _page(
            "browser/compare.html",
            query,
            runs=runs,
            draw_apart=len(shared_problems) < min(map(len, sides)),
            timelines=[run.timeline(step) for run in runs],
            shared=shared,
            step=step,
            neighbours=_neighbours(shared, step),
            state="" if query.text("step") else state,
            pairs=[[side[name] for side in sides] for name in names[(page - 1) * PER_PAGE : page * PER_PAGE]],
            page=page,
            pages=pages,
            num_shared=len(shared_problems),
            num_chosen=len(names),
            filters=filters,
            **_choices(problems),
            num_problems=[len(side) for side in sides],
            shown=shown,
            open_pair=[run.problem(step, shown) for run in runs] if shown in names else (),
        )

    def live(self, request: Request) -> Response:
        """A text that changes when a run continues."""
        return Response(self._state(), media_type="text/plain", headers=HEADERS)

    def _state(self) -> str:
        return " ".join(str(number) for run in self._runs for number in run.state())

    def _run(self, query: "_Query", name: str, *, default: int) -> ViewedRun:
        number = query.number(name, int)
        number = default if number is None else number
        if not 0 <= number < len(self._runs):
            raise _BadQuery(f"{name}={number}: expected 0 to {len(self._runs) - 1}")
        return self._runs[number]

    def _run_and_step(self, query: "_Query") -> tuple[ViewedRun, list[int], int]:
        run = self._run(query, "run", default=0)
        steps, step = run.steps(), query.number("step", int)
        return run, steps, (steps[-1] if steps else 0) if step is None else step


class _Query:
    """The query string of an address."""

    def __init__(self, request: Request) -> None:
        self._given = dict(request.query_params)
        self.path = request.url.path

    def exact(self, name: str) -> str:
        return self._given.get(name, "")

    def text(self, name: str) -> str:
        return self.exact(name).strip()

    def number(self, name: str, kind: Callable[[str], Number]) -> Number | None:
        text = self.text(name)
        try:
            number = kind(text) if text else None
            if not math.isfinite(number or 0):  # an integer that is too large overflows
                raise ValueError
            return number
        except (OverflowError, ValueError):
            raise _BadQuery(f"{name}={text}: expected a number") from None

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        text = self.text(name) or allowed[0]
        if text not in allowed:
            raise _BadQuery(f"{name}={text}: expected one of {', '.join(allowed)}")
        return text

    def filters(self) -> Filters:
        verdicts = ("", NOT_CORRECT, *GradeReason)
        return Filters(
            problem=self.text("problem"),
            text=self.text("text"),
            source=self.text("source"),
            level=self.text("level"),
            verdict=self.one_of("verdict", verdicts),
            round=self.number("round", int),
            min_hint=self.number("min_hint", float),
            max_hint=self.number("max_hint", float),
            min_tokens=self.number("min_tokens", int),
            max_tokens=self.number("max_tokens", int),
        )

    def rest(self, names: Collection[str]) -> list[tuple[str, str]]:
        """Return the other parameters, for a form that keeps them."""
        return [(name, value) for name, value in self._given.items() if name not in names]

    def link(self, path: str | None = None, **changes: Any) -> str:
        """Return this address with other values; None removes one."""
        merged = {
            name: value for name, value in {**self._given, **changes}.items() if value not in (None, "")
        }
        return f"{path or self.path}?{urlencode(merged)}"

    def round_link(self, step: int, instance_id: str, number: int, place: str) -> str:
        """Return the address of a problem's round in a step, without filters that might leave it out.

        Args:
            step: The step.
            instance_id: The problem.
            number: The round, from 0.
            place: End of its anchor: its place in the problem, from 1, as a round may have several hints.
        """
        if self.path == "/compare":
            link = self.link(step=step, open=instance_id)
        else:
            link = self.problem_link(step, instance_id, round=number + 1)
        return f"{link}#round-{place}"

    def problem_link(self, step: int, instance_id: str, *, round: int | None = None) -> str:
        """Return the address of a problem, open in a step, without filters that might leave it out.

        Args:
            step: The step.
            instance_id: The problem.
            round: The round that is not pale, from 1; None for all.
        """
        names = ("id", "page", "text", "verdict", "min_hint", "max_hint", "min_tokens", "max_tokens")
        return self.link("/", **dict.fromkeys(names), step=step, open=instance_id, round=round)


def _choices(problems: Sequence[ShownProblem]) -> dict[str, Any]:
    """Return what the form of the filters offers for these problems."""
    return {
        "sources": sorted({each.first.data_source for each in problems}),
        "levels": sorted({each.first.level for each in problems} - {""}, key=_number_first),
        "has_tokens": any(each.has_tokens for each in problems),
    }


def _number_first(level: str) -> tuple[bool, int, str]:
    return (not level.isdecimal(), int(level) if level.isdecimal() else 0, level)


def _fitted(run: ViewedRun, instance_id: str) -> FittedCurve | None:
    curve = run.curve(instance_id)
    return draw_curve(curve) if curve else None


def _page_of(names: Sequence[str], shown: str, query: _Query) -> tuple[int, int]:
    """Return the page that is asked for, else that of the problem ``shown``, and the number of pages."""
    pages = max(1, -(-len(names) // PER_PAGE))
    page = query.number("page", int)
    if page is None:
        page = names.index(shown) // PER_PAGE + 1 if shown in names else 1
    return min(max(1, page), pages), pages


def _neighbours(steps: Sequence[int], step: int) -> tuple[int | None, int | None]:
    """Return the previous and the next step."""
    before = [each for each in steps if each < step]
    after = [each for each in steps if each > step]
    return before[-1] if before else None, after[0] if after else None


def _page(template: str, query: _Query, **values: Any) -> Response:
    colour = query.one_of("colour", COLOURS)
    html = render_template(
        template,
        query=query,
        link=query.link,
        colour=colour,
        coloured=coloured,
        colours=COLOURS,
        orders=tuple(ORDERS),
        verdicts=(NOT_CORRECT, *GradeReason),
        **values,
    )
    return HTMLResponse(html, headers=HEADERS)


HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
STATIC = {"view.css": "text/css", "view.js": "text/javascript"}


def _static(name: str, kind: str) -> Callable[[Request], Response]:
    content = (files("seele.report") / "templates" / "browser" / name).read_bytes()
    return lambda _: Response(content, media_type=kind, headers=HEADERS)


def _bad_query(request: Request, error: Exception) -> Response:
    return Response(f"{error}\n", status_code=400, media_type="text/plain", headers=HEADERS)

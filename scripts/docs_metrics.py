"""Write the tables of docs/metrics.md from seele/metrics.py.

needs    SEELE's environment
writes   docs/metrics.md

python scripts/docs_metrics.py
"""

from pathlib import Path

from seele.metrics import METRICS

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN = "<!-- from seele/metrics.py -->\n"


def page(text: str) -> str:
    """Return the page with new tables: a heading and a table for each topic."""
    lines = []
    for topic, definitions in METRICS.items():
        lines += ["", f"## {topic}", "", "| metric | what it is |", "|---|---|"]
        for names, about in definitions.items():
            lines.append(f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {about} |")
    return text.partition(BEGIN)[0] + BEGIN + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

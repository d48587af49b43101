"""Draws a study's figures as PNG and SVG, from the files in its folder alone."""

import argparse
import sys
from pathlib import Path

from tigon.study.data import StudyError, read_study


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tigon.study", description=__doc__)
    parser.add_argument("study", type=Path, metavar="DIR", help="a folder that tigon study has written")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where the figures go (default: DIR/figures)")
    given = parser.parse_args()
    try:
        from tigon.study.figures import figures_of
    except ImportError as missing:
        print(f"tigon.study draws with matplotlib, and {missing}: pip install matplotlib", file=sys.stderr)
        return 1
    try:
        study = read_study(given.study)
        folder = given.output or given.study / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        names = []
        for name, figure in figures_of(study):
            for ending in ("png", "svg"):
                figure.savefig(folder / f"{name}.{ending}", dpi=200, bbox_inches="tight")
            names.append(name)
    except (StudyError, OSError) as error:
        print(f"tigon.study: {error}", file=sys.stderr)
        return 1
    for note in study.notes:
        print(f"note: {note}")
    if not names:
        print(f"tigon.study: no point of {given.study} has anything to draw yet", file=sys.stderr)
        return 1
    print(f"{len(names)} figures, each as PNG and SVG, are in {folder}: {', '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Figures of a study: ``python -m tigon.study DIR --output FOLDER``. See docs/study.md."""

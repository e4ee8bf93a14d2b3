"""The root of all errors and the exit codes of commands (DESIGN 11)."""

from __future__ import annotations

from typing import ClassVar

EXIT_SOFTWARE = 70
EXIT_RETRY = 75
EXIT_FENCED = 77
EXIT_PERSON = 78


class PenstockError(Exception):
    """Root of all errors that Penstock raises on purpose.

    `what` happened is one clause, `where` a path, a name or `file:line`; `fields` become attributes.
    """

    code: ClassVar[str] = "PEN-000"
    remedy: ClassVar[str] = "Read the message; it names what was wrong."
    exit_code: ClassVar[int] = EXIT_PERSON

    def __init__(self, what: str, *, where: str | None = None, **fields: object) -> None:
        self.what = what
        self.where = where
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(what)

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.code} {self.what}{place}. {self.remedy}"

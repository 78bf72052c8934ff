"""The exception for user mistakes."""


class ExportError(Exception):
    """The model cannot be exported in its present form.

    The text has what happened and where; `next_step` is what the user should do next.
    """

    def __init__(self, what, next_step=""):
        super().__init__(what + (f"\n  ({next_step})" if next_step else ""))
        self.next_step = next_step

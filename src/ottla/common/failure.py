"""The failure of a program, for the person who started it."""


class Failure(Exception):
    """The end of a program that failed, without a traceback: `problem` in one line, then lines with the next step."""

    def __init__(self, problem: str, *advice: str, exit_code: int = 1, command: str = "ottla") -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.exit_code = exit_code
        self.command = command

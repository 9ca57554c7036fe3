"""The operator's commands in the process of the test."""

from deployments.cli.administration import operator


def main(arguments: list[str]) -> None:
    """Runs the command of the arguments; raises SystemExit when it fails."""
    try:
        operator(arguments)
    except SystemExit as ended:
        if ended.code:
            raise

"""Keeps the making of voices out of the way of whoever listens."""

import logging
import os

logger = logging.getLogger(__name__)

NICENESS = 19


def stand_back() -> None:
    """This thread, and those that it starts, compute only while a core would be idle.

    Where the system knows no such class, they are merely the least important.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError) as error:
        logger.warning("no_idle_scheduling", extra={"reason": str(error)})
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)

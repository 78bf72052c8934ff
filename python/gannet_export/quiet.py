"""Keeps PyTorch's log output off the user's terminal while one of its errors is caught and explained."""
import contextlib
import io
import logging
import warnings


@contextlib.contextmanager
def quiet():
    former = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(former)

"""Keeps PyTorch's own log away from the user's terminal while an error of it is caught and explained."""
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

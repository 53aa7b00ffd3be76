"""What a child, a thread or a worker of a process may meet."""

import functools
import importlib
import inspect
import multiprocessing
import pkgutil
import threading
import warnings

import joblib
import pytest

import sklearn_balldp
from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp._cached import cached_property
from sklearn_balldp.privacy.exact_normal import _PART, rounded_normal


def modules():
    for found in pkgutil.walk_packages(sklearn_balldp.__path__, "sklearn_balldp."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


@pytest.mark.kills(
    "_cached.py",
    "value = vars(instance)[self.attrname] = self.func(instance)",
    "return super().__get__(instance, owner)",
)
def test_no_property_waits_for_another_object():
    """A child that is forked in the middle of one would wait for ever, on Python 3.11."""
    begun, finish = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, waits):
            self.waits = waits

        @cached_property
        def value(self):
            if self.waits:
                begun.set()
                assert finish.wait(60)
            return 1

    thread = threading.Thread(target=lambda: Slow(True).value)
    thread.start()
    assert begun.wait(60)
    other = threading.Thread(target=lambda: Slow(False).value, daemon=True)
    other.start()
    other.join(10)
    waits = other.is_alive()
    finish.set()
    thread.join()
    assert not waits
    one = Slow(False)
    assert (one.value, vars(one)["value"]) == (1, 1)


@pytest.mark.kills("privacy/problem.py", "from .._cached import", "from functools import")
def test_all_properties_of_the_package_are_without_a_lock():
    for module in modules():
        for _, kind in inspect.getmembers(module, inspect.isclass):
            held = vars(kind).items() if kind.__module__.startswith("sklearn_balldp") else ()
            locked = [name for name, value in held if type(value) is functools.cached_property]
            assert not locked, (kind, locked)


def _draws(_):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of several parts, which threads draw.
        rounded_normal(2 * _PART)
        head = BallDPRidgePrototype(2.0, radius=0.5)
        return head.plan(100, 5, [50, 50]).release.epsilon


@pytest.mark.kills(
    "privacy/exact_normal.py", "min(4, cpu_count())", '__import__("joblib").effective_n_jobs(-1)'
)
def test_workers_of_a_pool_are_told_nothing_once_they_have_charged():
    """Joblib warns of its own backend there: an error where warnings are errors."""
    assert joblib.cpu_count() >= 1
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_draws, [0]) == [2.0]

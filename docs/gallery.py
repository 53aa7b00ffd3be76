"""The order in which a newcomer reads the examples."""

EXAMPLES = (
    "quickstart",
    "radius",
    "radius_and_epsilon",
    "compare_standard_dp",
    "labels",
    "rare_classes",
    "table",
    "search",
    "accounting",
    "audit",
    "publish",
    "certificates",
    "own_mechanism",
    "text_pipeline",
    "image_pipeline",
)


class ReadingOrder:
    """Sort key of an example's file name."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name):
        """Place of ``plot_NAME.py``."""
        return EXAMPLES.index(name.removeprefix("plot_").removesuffix(".py"))

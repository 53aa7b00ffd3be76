"""One page about a release, for readers who decide about it without technical knowledge."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._parameters import LEAST, MOST
from ..pipelines import parts_of, stretch_of
from ..text import DOWN, UP, one_line, percent, rounded

#: Numbers of candidates that certificates are stated for.
CANDIDATES = (2, 10, 100)
#: False-positive rates that an attacker's true-positive rate is stated at.
FALSE_POSITIVE_RATES = (0.01, 0.001)
#: Advantage of an attacker above which a release hides next to nothing.
NOTHING_HIDDEN = 0.99
_BLANK = "FILL IN"
Table = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A heading with the text below it: sentences, points of a list, then a table.

    What is ``folded`` is for experts: the page in HTML shows it on a click, and in print.
    """

    title: str
    sentences: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    table: Table = ()
    folded: bool = False


@dataclass(frozen=True)
class Card:
    """A release in plain words, as Markdown, HTML, and the YAML of the registry of deployments.

    Made by :meth:`.Release.card`. Printing it gives the Markdown, which model hubs accept.

    Attributes
    ----------
    title : str
        Heading of the page.
    sections : tuple of Section
        Its text.
    registry : dict
        Fields of the public registry of deployments; a field that only the publisher can fill says
        "FILL IN".
    """

    title: str
    sections: tuple[Section, ...]
    registry: dict[str, Any]

    def to_markdown(self) -> str:
        """Write the card as Markdown, with the front matter of model cards.

        Returns
        -------
        str
            Text for ``README.md`` of a model hub, say.
        """
        lines = [
            "---",
            "library_name: sklearn_balldp",
            "tags: [differential-privacy, ball-differential-privacy, sklearn]",
            "---",
            "",
            f"# {_marked(self.title)}",
        ]
        for section in self.sections:
            lines += ["", f"## {section.title}", ""]
            lines += [_marked(" ".join(section.sentences))] if section.sentences else []
            if section.points:
                lines += [""] if section.sentences else []
                lines += [f"- {_marked(point)}" for point in section.points]
            if section.table:
                head, *rows = section.table
                lines += ["", _row(head), _row(["---"] * len(head)), *map(_row, rows)]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Write the card as one page of HTML.

        Returns
        -------
        str
            A document of its own.
        """
        body = [f"<h1>{html.escape(self.title)}</h1>"]
        for section in self.sections:
            title = f"<h2>{html.escape(section.title)}</h2>"
            body.append(f"<details><summary>{title}</summary>" if section.folded else title)
            if section.sentences:
                body.append(f"<p>{html.escape(' '.join(section.sentences))}</p>")
            if section.points:
                items = "".join(f"<li>{html.escape(point)}</li>" for point in section.points)
                body.append(f"<ul>{items}</ul>")
            if section.table:
                head, *rows = section.table
                cells = "".join(f"<th scope='col'>{html.escape(cell)}</th>" for cell in head)
                lines = [
                    f"<tr><th scope='row'>{html.escape(first)}</th>"
                    + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
                    + "</tr>"
                    for first, *rest in rows
                ]
                table = f"<table><tr>{cells}</tr>{''.join(lines)}</table>"
                body.append(f"<div class='wide'>{table}</div>")
            body += ["</details>"] if section.folded else []
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width'>"
            f"<title>{html.escape(self.title)}</title><style>{_STYLE}</style></head>"
            f"<body>{chr(10).join(body)}</body></html>\n"
        )

    def to_yaml(self) -> str:
        """Write the entry of the public registry of deployments, with blanks to fill in.

        Returns
        -------
        str
            YAML.

        Raises
        ------
        ImportError
            If PyYAML is not installed.
        """
        try:
            import yaml
        except ImportError as error:
            raise ImportError("YAML is written by PyYAML; pip install pyyaml.") from error
        text: str = yaml.safe_dump(self.registry, sort_keys=False, allow_unicode=True)
        return text

    def save(self, path: str | Path) -> None:
        """Write the card: Markdown, HTML or YAML, by the ending of the file's name.

        Parameters
        ----------
        path : str or path-like
            Name that ends in ``.md``, ``.html`` or ``.yaml``.

        Raises
        ------
        ValueError
            If it ends otherwise.
        """
        path = Path(path)
        forms = {".md": self.to_markdown, ".html": self.to_html, ".yaml": self.to_yaml}
        if path.suffix not in forms:
            raise ValueError(f"path={str(path)!r} must end in {', '.join(forms)}.")
        path.write_text(forms[path.suffix](), encoding="utf-8")

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()


_STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;max-width:46em;margin:1.5em auto;padding:0 1em;"
    "color:#222}h1{font-size:1.4em;margin:0 0 .4em}h2{font-size:1.05em;margin:1em 0 .2em}"
    "p,ul{margin:.2em 0}ul{padding-left:1.2em}table{border-collapse:collapse;margin:.4em 0;"
    "font-size:.92em}th,td{border-bottom:1px solid #ccc;padding:.15em .6em;text-align:right}"
    "th:first-child{text-align:left;font-weight:normal}tr:first-child th{font-weight:bold}"
    ".wide{overflow-x:auto}summary{cursor:pointer}summary h2{display:inline}details{margin:1em 0}"
    "@media print{details::details-content{content-visibility:visible;block-size:auto}"
    ".wide{overflow:visible}}"
    "@media(prefers-color-scheme:dark){body{background:#1b1b1d;color:#ddd}th,td{border-color:#555}}"
)


def card_of(release: Any, model: Any = None, audit: Any = None) -> Card:
    """The card of a release; see :meth:`.Release.card`."""
    sections = [
        *_not_private(release),
        _in_short(release),
        _promise(release, model),
        _not_covered(release),
        _guarantee(release),
        _others(release),
    ]
    if audit is not None:
        sections.append(_measured(audit))
    sections.append(_origin(release, model))
    return Card(f"Privacy card of a {release.head}", tuple(sections), _registry(release))


def _where(release: Any) -> str:
    """Where rows lie."""
    if release.domain == "sphere":
        return f"scaled to norm {release.norm_bound:g}"
    return f"in a ball of radius {release.norm_bound:g}"


def _near(release: Any) -> str:
    """Which replacements of a record the guarantee covers."""
    scaled = f" {_where(release)}" if release.domain == "sphere" else ""
    edits = f", which covers {release.hidden_edits}" if release.hidden_edits else ""
    distance = f"{release.metric} distance between rows as the head sees them{scaled}{edits}"
    return f"within {_short(release.radius)} ({distance})"


def _change(release: Any) -> str:
    """Which change of one record, or of each of one person's, is hidden."""
    if release.labels == "protected":
        return (
            f"replaced by any other of another label, or by one of the same label {_near(release)}"
        )
    return f"replaced by another of the same label {_near(release)}"


def _subject(release: Any, article: str = "a") -> str:
    """What is replaced, as the subject of a sentence."""
    if release.unit == "person":
        return "each record of one person is"
    return f"{article} record is"


def _trained_on(release: Any) -> str:
    """Records, and whose they are."""
    if release.unit == "person":
        most = release.weights.most_records
        return (
            f"{release.n_samples} private records of {release.n_units} persons (at most {most} of "
            "one person)"
        )
    return f"{release.n_samples} private records"


def _before(release: Any, model: Any) -> tuple[str, ...]:
    """What the distance is before the steps of a pipeline, as far as that is known."""
    steps = parts_of(model).steps
    if not steps:
        return ()
    names = ", ".join(one_line(name, 60) for name, _ in steps)
    stretches = [stretch_of(step) for _, step in steps]
    unknown = [one_line(n, 60) for (n, _), s in zip(steps, stretches, strict=True) if s is None]
    factor = math.prod(stretch for stretch in stretches if stretch is not None)
    if release.domain == "sphere":
        # Short rows are stretched by it, as far as one likes.
        unknown.append(f"the scaling to norm {release.norm_bound:g} after them")
    if unknown or release.metric != "euclidean" or not LEAST <= factor <= MOST:
        which = ", ".join(unknown or [names])
        return (
            f"The head sees rows after {names}, and the distance is one of these rows. How far "
            f"apart they are before is not known: {which} may move even records that are all but "
            "equal further apart.",
        )
    least = float(_short(release.radius)) / factor * (1.0 - 1e-9)
    return (
        f"The head sees rows after {names}. Two rows within {_down(least)} of each other before "
        f"these steps lie within {_short(release.radius)} after them.",
    )


def _tells(advantage: float) -> str:
    """What an attacker of this advantage can do."""
    if advantage < 0.1:
        return "can hardly tell"
    return "tells a little better than by chance" if advantage <= 0.3 else "can often tell"


def _not_private(release: Any) -> list[Section]:
    """A warning in front of everything else, where noise was drawn from a seed."""
    if release.private is not False:
        return []
    seeded = (
        "The radius was computed from private records with noise from a seed. Whoever knows "
        "the seed learns about the records from it."
        if release.radius_source == "seeded"
        else "The noise in this model was drawn from a seed. Whoever knows or guesses the seed "
        "can take the noise off, so nothing is hidden."
    )
    further = "All numbers on this page hold for the same method without a seed."
    return [Section("NOT PRIVATE", (seeded, further))]


def _in_short(release: Any) -> Section:
    """Who is hidden from what, what an attacker gains, and what is left out: a line each."""
    person = release.unit == "person"
    what = "the records of one person were" if person else "a record was"
    others = "others of the same labels" if person else "another of the same label"
    if release.labels == "protected":
        others = "any others of other labels, or ones" if person else "any of another label, or one"
        others += " of the same label"
    near = f" at most {_short(release.radius)} away ({_meaning(release)})"
    known = "the records of everybody else" if person else "all other records"
    labels = "" if release.labels == "protected" else "labels and class counts; "
    several = "" if person else "several records of one person; "
    times = _times(release.certificate(0.1))
    hidden = f"Hidden: whether {what} replaced by {others}{near}."
    if release.guarantee().advantage > NOTHING_HIDDEN:
        hidden = "Next to nothing is hidden: the noise is too small."
    elif release.private == "conditional":
        hidden += " This holds if the radius, which was read off the records, may be public."
    return Section(
        "In short",
        points=(
            hidden,
            f"What an attacker gains: he knows {known} and holds ten equally likely candidates "
            f"that close to one possible record. He names the true one at most {times} times in a "
            "hundred, where a blind guess is right 10 times.",
            f"Not covered: {labels}{several}larger changes; what several models from the same "
            "records tell together.",
        ),
    )


def _meaning(release: Any) -> str:
    """What a radius means, as far as it is known."""
    if release.hidden_edits:
        return f"this covers {release.hidden_edits}"
    if release.radius >= release.full_radius:
        return "no two records are further apart"
    share = release.radius / release.full_radius
    if share < 0.01:
        return "less than a hundredth of the largest distance of two rows"
    return f"{math.floor(100.0 * share + 1e-9)} % of the largest distance of two rows"


def _short(value: float) -> str:
    """A distance in three digits, rounded down: what is hidden further is hidden here."""
    return rounded(value, 3, DOWN)


def _times(share: float) -> str:
    """How often in a hundred, rounded up."""
    return percent(share, places=0).removesuffix(" %")


def _promise(release: Any, model: Any = None) -> Section:
    condition = "This holds on one condition: the radius, read off the records, may be public."
    conditions = (condition,) if release.private == "conditional" else ()
    person = release.unit == "person"
    same = "" if release.labels == "protected" else " of one label"
    same = " with the same labels" if person and same else same
    others = "the records of everybody else" if person else "all other records"
    return Section(
        "What is promised",
        (
            f"This model was trained on {_trained_on(release)}.",
            "It limits what anyone can learn about one person among them."
            if person
            else "It limits what anyone can learn about one of them.",
            f"Suppose {_subject(release)} {_change(release)}.",
            *_before(release, model),
            f"Whoever sees the model {_tells(release.guarantee().advantage)} which of the two was "
            f"used, even if he knows {others}, the method and its settings.",
            f"His advantage over guessing is at most {percent(release.guarantee().advantage)} "
            "(0 % is guessing, 100 % is certainty).",
            f"The ten candidates above are {_versions(release)}{same}.",
            *conditions,
        ),
    )


def _versions(release: Any) -> str:
    """What the attacker's candidates are called."""
    return "versions of one person's records" if release.unit == "person" else "records"


def _radii(release: Any) -> list[tuple[str, float | None]]:
    """Radii of the table: the declared one, twice that, and the largest there is."""
    full = release.full_radius
    named = [("r", release.radius), ("2 r", 2.0 * release.radius)]
    kept = [(name, radius) for name, radius in named if radius < full]
    shown: list[tuple[str, float | None]] = [(f"{n} = {_short(t)}", t) for n, t in kept]
    return [*shown, (f"any distance (up to {_up(full)})", full)]


def _guarantee(release: Any) -> Section:
    radii = [radius for _, radius in _radii(release)]
    columns = [release.guarantee(radius) for radius in radii]
    candidates = [release.guarantee_of_candidates(radius) for radius in radii]
    rows = [
        ("epsilon", [_up(g.epsilon) for g in columns]),
        ("delta", [_up(g.delta) for g in columns]),
        ("mu (Gaussian DP)", [_up(g.mu_total) for g in columns]),
        ("rho (zero-concentrated DP)", [_up(0.5 * g.mu_total**2) for g in columns]),
        ("advantage in telling two records apart", [percent(g.advantage) for g in columns]),
        *(
            (
                f"true positives at {100.0 * fpr:g} % false positives",
                [percent(g.tpr(fpr)) for g in columns],
            )
            for fpr in FALSE_POSITIVE_RATES
        ),
        *(
            (
                f"names the right one of {m} candidates",
                [percent(g.certificate(1.0 / m)) for g in candidates],
            )
            for m in CANDIDATES
        ),
    ]
    head = ("at most", *(name for name, _ in _radii(release)))
    same = "" if release.labels == "protected" else ", of the same label"
    label = "" if release.labels == "protected" else " Guessing the label is not covered."
    return Section(
        "The guarantee in numbers",
        (
            f"Each column holds for replacements up to the distance in its header{same}; the first "
            "is the one promised. All numbers are upper bounds.",
            "The two records that are told apart lie within that distance of each other; the "
            "candidates lie within it of one possible record, and two of them may be twice as far "
            "apart, but no further than any two rows can be.",
            "True positives: how often an attacker recognises one version of a record. False "
            "positives: how often he names that version when it was the other.",
            "The bounds hold for re-identification, attribute inference and reconstruction among "
            f"such records{same} "
            f"(Kulynych et al., 2025, arXiv:2507.06969).{label}",
        ),
        table=(head, *((name, *cells) for name, cells in rows)),
        folded=True,
    )


def _not_covered(release: Any) -> Section:
    labels = (
        ()
        if release.labels == "protected"
        else ("labels, and how many records each class has: they are public",)
    )
    return Section(
        "What is not covered",
        points=(
            "replacements further away than the distance promised, beyond what the other columns "
            "say",
            *labels,
            _several(release),
            "what is true of the population: a model may reveal that smokers fall ill, whoever "
            "took part",
            "the number of records, the encoder and every setting, which are public",
            "preprocessing fitted on the private records, and anything else made from them",
            "a publisher who does not do what he says: anyone can check that model and record "
            "agree (balldp verify), only the owner of the records can test the "
            "noise, and no check finds a clever lie",
            *((release.vouched_for,) if release.accepted else ()),
        ),
    )


def _several(release: Any) -> str:
    """The guarantee for several units together."""
    two = _up(release.guarantee(records=2).epsilon)
    if release.unit == "person":
        return (
            f"several persons at once: for two persons epsilon is {two}; and which records belong "
            "to one person, which the publisher stated"
        )
    return f"several records of one person: for two records epsilon is {two}"


def _others(release: Any) -> Section:
    mu = _up(release.guarantee().mu_total)
    return Section(
        "Other releases from the same records",
        (
            "Each further model from the same records weakens the promise.",
            f"mu measures the loss: this model has mu = {mu} at the distance promised.",
            "Models whose mu was fixed beforehand combine as mu = sqrt(mu1^2 + mu2^2 + ...).",
            "Choosing the best of several models by scores on private records is a release of its "
            "own.",
        ),
        folded=True,
    )


def _measured(audit: Any) -> Section:
    low, high = audit.success_interval_["clopper_pearson"]
    points = [
        f"{len(audit.report_)} simulated attacks by someone who knows all other records: the right "
        f"candidate was named in {percent(audit.success_rate_)} ({percent(low, DOWN)} to "
        f"{percent(high)}); blind guess {percent(audit.baseline_)}, bound "
        f"{percent(float(audit.certificate_['direct']))}",
    ]
    checks = audit.noise_.itertuples(index=False)
    points += [f"check of the {row.name}: {row.verdict} ({row.found})" for row in checks]
    points += [f"FAILED: {failure}" for failure in audit.failures_]
    return Section(
        "Measured by the owner: not for publication",
        (
            "These results depend on the private records, and no guarantee covers them.",
            "Take this section out before you publish the card.",
            "The tests find mistakes; they certify nothing.",
        ),
        points=tuple(points),
    )


def _origin(release: Any, model: Any) -> Section:
    points = [
        f"released on {release.date} by sklearn_balldp {release.version}, numpy "
        f"{release.numpy_version}",
        f"mechanism: {release.bound.what} ({release.mechanism}); sensitivity by {release.theorem}",
        f"radius: {_exact(release.radius)}; noise: {release.sampler}",
        *(f"{name}: {text}" for name, text in release.weight_rows()),
        f"encoder of the records: {release.encoder or 'not recorded'}",
        f"SHA-256 of the released parameters: {release.digest or 'not recorded'}",
    ]
    if model is not None:
        same = release.matches(model)
        points.append(f"the model at hand {'has' if same else 'does NOT have'} these parameters")
    points += [f"assumes: {assumption}" for assumption in release.assumptions]
    return Section("Where it comes from", points=tuple(points), folded=True)


def _registry(release: Any) -> dict[str, Any]:
    """Fields of the public registry of deployments, in its order."""
    guarantee = release.guarantee()
    labels = "" if release.labels == "protected" else "labels and class counts; "
    seeded = "NOT PRIVATE: the noise was drawn from a seed. " if release.private is False else ""
    unit = f"one record, {_change(release)}"
    if release.unit == "person":
        unit = f"all records of {release.unit_in_words}, each {_change(release)}"
    return {
        "url_slug": f"{_BLANK}: name-curator-year",
        "deployment": {
            "basic": {
                "name": f"{_BLANK}: name of the deployment",
                "data_curators": [
                    {
                        "data_curator_name": f"{_BLANK}: who holds the records",
                        "data_curator_type": f"{_BLANK}: Government, Industry or Nonprofit",
                    }
                ],
                "description": f"{release.head} on embeddings of {release.n_samples} records, "
                f"{release.n_classes} classes. {_BLANK}: what the records are",
                "intended_use": f"{_BLANK}: what the model is for",
                "data_product_type": "Machine learning model",
                "data_product_region": f"{_BLANK}: where the records come from",
                "publication_date": release.date,
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": f"rows of {release.n_features} features {_where(release)}, "
                f"{release.n_classes} labels",
                "unprotected_quantities": f"{labels}number of records, label set, encoder, all "
                "settings",
            },
            "privacy_loss": {
                "privacy_unit": unit,
                "privacy_unit_details": seeded
                + "Ball-DP (Margaryan & Gupta), not standard DP unless every distance and labels "
                f"are hidden: datasets are adjacent when {_subject(release, 'one')} "
                f"{_change(release)}. At any "
                f"distance, labels {release.labels}: epsilon="
                f"{_up(release.epsilon_full_radius, 6)}, same delta.",
                "number_of_privacy_units": release.n_units,
                "privacy_parameters": {
                    "epsilon": guarantee.epsilon,
                    "delta": guarantee.delta,
                    "rho": 0.5 * guarantee.mu_total**2,
                },
                "privacy_parameters_details": "upper bounds from Gaussian DP, "
                f"mu={_up(guarantee.mu_total, 6)}",
            },
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": "whoever trains sees the records; whoever sees the model is "
                "not trusted",
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
                "access_type_details": f"the parameters are published. {_BLANK}: where",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"{_BLANK}: how settings were chosen, "
                "and whether that was counted",
                "mechanisms": f"sklearn_balldp {release.version}: {release.bound.what}; "
                f"{release.theorem}; {release.sampler}; parameters SHA-256 {release.digest}",
                "composition": f"{_BLANK}: other releases from these records",
                "post_processing": "functions of released numbers and public counts",
            },
        },
        "administrative": {
            "status": "Draft",
            "registry_authors": [f"{_BLANK}: who made this entry"],
            "tier": f"{_BLANK}: 1, 2 or 3",
        },
    }


def _down(value: float) -> str:
    """A number with four digits, rounded down."""
    return rounded(value, 4, DOWN)


def _exact(value: float) -> str:
    """A number in all its digits."""
    return repr(value).removesuffix(".0")


def _up(value: float, digits: int = 4) -> str:
    """An upper bound in few digits, never below it."""
    return rounded(value, digits, UP) if math.isfinite(value) else "none"


def _marked(text: str) -> str:
    """Text with the special characters of Markdown escaped."""
    for mark in "\\`*_<>[]|":
        text = text.replace(mark, "\\" + mark)
    return text


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell if set(cell) == {"-"} else _marked(cell) for cell in cells) + " |"

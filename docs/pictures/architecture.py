"""The rooms of the package in layers, and the imports between them, read from its code."""

import ast
from pathlib import Path

import matplotlib.pyplot as plt

import sklearn_balldp

ROOT = Path(sklearn_balldp.__file__).parent
#: Modules at the top that share a room, and what a room is for. Helpers are no rooms.
SHARED = {"distances": "radius", "edits": "radius", "losses": "adjacency"}
ROOMS = {
    "command": "balldp",
    "publish": "files, card, verify",
    "audit": "attacks, noise tests",
    "heads": "fit, predict, plan",
    "mechanisms": "queries, kernel, rules",
    "radius": "policy, distances, edits",
    "encoders": "texts, images, tables",
    "rows": "arrays, stores, Dask",
    "accounting": "ledger",
    "privacy": "sensitivities, noise, record",
    "adjacency": "what is hidden; losses",
}


def imports():
    """Pairs of rooms, the first of which imports from the second, sooner or later."""
    pairs = set()
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.ImportFrom) and node.level):
                continue
            parents = list(parts[: len(parts) - node.level])
            targets = [node.module] if node.module else [alias.name for alias in node.names]
            for target in targets:
                name = [*parents, *target.split(".")][0]
                pairs.add((SHARED.get(parts[0], parts[0]), SHARED.get(name, name)))
    return {(a, b) for a, b in pairs if a != b and {a, b} <= set(ROOMS)}


def height(room, pairs):
    """Layer of a room: one above the highest that it imports."""
    return 1 + max((height(below, pairs) for above, below in pairs if above == room), default=-1)


def reaches(start, end, pairs):
    return any(b == end or reaches(b, end, pairs) for a, b in pairs if a == start)


def direct(pairs):
    """Arrows that do not follow from others."""
    return {(a, b) for a, b in pairs if not reaches(a, b, pairs - {(a, b)})}


pairs = imports()
lowest = {room: height(room, pairs) for room in ROOMS}
#: As high as what imports a room allows: arrows are short.
layers = {
    room: min((lowest[above] - 1 for above, below in pairs if below == room), default=lowest[room])
    for room in ROOMS
}
places = {}
for layer in sorted(set(layers.values())):
    rooms = [room for room in ROOMS if layers[room] == layer]
    for i, room in enumerate(rooms):
        places[room] = (3.2 * (i - (len(rooms) - 1) / 2), layer)
figure, ax = plt.subplots(figsize=(6.4, 6.4), layout="constrained")
for above, below in sorted(direct(pairs)):
    (x, y), (to_x, to_y) = places[above], places[below]
    arrow = {"arrowstyle": "-|>", "color": "0.45", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14}
    ax.annotate("", (to_x, to_y + 0.28), (x, y - 0.28), arrowprops=arrow)
for room, (x, y) in places.items():
    box = plt.Rectangle((x - 1.45, y - 0.28), 2.9, 0.56, facecolor="#d7e6f3", edgecolor="C0")
    ax.add_patch(box)
    ax.text(x, y + 0.09, room, ha="center", va="center", fontsize=12, weight="bold")
    ax.text(x, y - 0.14, ROOMS[room], ha="center", va="center", fontsize=9.5)
ax.set(xlim=(-3.2, 3.2), ylim=(-0.5, max(layers.values()) + 0.5))
ax.axis("off")

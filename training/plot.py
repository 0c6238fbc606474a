"""Draws the loss curve of a run's log. Knows nothing of training."""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from training.train import read_losses

SMOOTHING = 0.97


def plot_losses(log: Path, picture: Path) -> None:
    tokens, losses, held_out = read_losses(log)
    figure = Figure(figsize=(8, 5), dpi=120)
    axes = figure.subplots()
    if len(losses):
        axes.plot(tokens / 1e6, _smooth(losses), color="0.6", label="training mix, smoothed")
    for name, points in held_out.items():
        at, values = np.array(points).T
        axes.plot(at / 1e6, values, marker=".", label=f"{name}, held out")
    axes.set_xlabel("million tokens")
    axes.set_ylabel("nats per token")
    if len(losses):
        axes.set_ylim(min(1.0, float(losses.min())), 6.0)
    axes.legend()
    figure.tight_layout()
    FigureCanvasAgg(figure).print_png(str(picture))  # type: ignore[no-untyped-call]


def _smooth(values: np.ndarray) -> np.ndarray:
    smoothed = np.empty_like(values)
    average = values[0]
    for index, value in enumerate(values):
        average = SMOOTHING * average + (1 - SMOOTHING) * value
        smoothed[index] = average
    return smoothed

"""Whether our accuracies differ from the paper's: Welch's test over seeds, and a verdict."""

from __future__ import annotations

from scipy import stats

from bignn.lab.paper.published import RUNS_ASSUMED
from bignn.lab.paper.results import Summary
from bignn.lab.report.document import Tone, Verdict


def welch(ours: Summary, paper: tuple[float, float], runs: int = RUNS_ASSUMED) -> float | None:
    """Return the p-value of Welch's test that both means are equal; None where nothing varies."""
    if ours.std is None or (ours.std == 0 and paper[1] == 0):
        return None
    samples = (ours.mean, ours.std, len(ours.test), *paper, runs)
    return float(stats.ttest_ind_from_stats(*samples, equal_var=False).pvalue)


#: A difference with a larger p-value is put down to noise.
SIGNIFICANT = 0.01


def verdict(
    ours: Summary | None, paper: tuple[float, float] | None, runs: int = RUNS_ASSUMED
) -> str:
    """Judge our accuracy beside the paper's: a :class:`Verdict`, or "" where one is missing.

    The paper's mean is printed to a tenth: what rounds to it is no difference.
    """
    if paper is None or ours is None:
        return ""
    difference = ours.mean - paper[0]
    if round(ours.mean, 1) == paper[0]:
        return Verdict("equal as printed", "even")
    direction = "higher" if difference > 0 else "lower"
    p = welch(ours, paper, runs)
    if p is None:
        if len(ours.test) == 1:
            return Verdict(f"{direction}; one seed", "even")
        return Verdict(f"{direction}; nothing varies", _tone(difference))
    if p > SIGNIFICANT:
        return Verdict(f"within noise (p = {p:.2g})", "even")
    return Verdict(f"{direction} (p = {p:.2g})", _tone(difference))


def _tone(difference: float) -> Tone:
    return "good" if difference > 0 else "poor"

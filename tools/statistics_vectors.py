#!/usr/bin/env python3
"""Makes tests/data/statistics.json: what scipy and R say about fixed samples.

    python3 tools/statistics_vectors.py > tests/data/statistics.json

Needs scipy >= 1.13 and Rscript. p values come from scipy (exact permutations where there are ties),
shifts and their intervals from R's wilcox.test, Holm's correction from R's p.adjust.
"""
import json
import subprocess
import sys

import numpy as np
import scipy
from scipy import stats

ALL = stats.PermutationMethod(n_resamples=np.inf)


def r(code):
    """The numbers that an R expression gives."""
    out = subprocess.run(["Rscript", "-e", f"cat(format({code}, digits=12), sep=' ')"],
                         capture_output=True, text=True, check=True).stdout
    return [float(x) for x in out.split()]


def c(values):
    return "c(" + ",".join(repr(float(v)) for v in values) + ")"


def r_shift(arguments):
    code = (f"(function() {{ t <- wilcox.test({arguments}, conf.int=TRUE, exact=TRUE);"
            " c(t$estimate, t$conf.int) })()")
    return dict(zip(("estimate", "low", "high"), r(code)))


def sign_flip(d):
    result = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf)
    return float(result.pvalue)


def paired(name, d, exact=True):
    case = {"name": name, "d": [float(x) for x in d]}
    if not exact:
        case["p"] = float(stats.wilcoxon(d, correction=True, method="asymptotic").pvalue)
        return case
    tied = len(set(np.abs(d))) < len(d) or 0 in d
    # Beyond some 20 values permutations are too many, and scipy's exact table wants no ties.
    case["p"] = float(stats.wilcoxon(d, method=ALL if tied else "exact").pvalue)
    if not tied and 6 <= len(d) < 50:
        case |= r_shift(c(d))
    if len(d) <= 16:
        case["sign_flip"] = sign_flip(d)
    return case


def median(values):
    """The interval of the median between order statistics, from the binomial's quantile."""
    values = [float(v) for v in values]
    case = {"values": values, "median": float(np.median(values))}
    outside = int(stats.binom.ppf(0.025, len(values), 0.5))
    if stats.binom.cdf(outside, len(values), 0.5) <= 0.025:
        outside += 1
    if outside:
        ordered = sorted(values)
        case |= {"low": ordered[outside - 1], "high": ordered[-outside]}
    return case


def main():
    rng = np.random.default_rng(7)

    def t(n, shift=0.0, scale=0.01, digits=6):
        return np.round(shift + scale * rng.standard_t(3, n), digits)

    coarse = np.round(rng.normal(0.6, 1, 14)) / 100
    table = {
        "made_by": f"tools/statistics_vectors.py, scipy {scipy.__version__}, "
                   + subprocess.run(["Rscript", "--version"], capture_output=True, text=True).stdout.strip(),
        "paired": [
            paired("six, one sign", np.abs(t(6))),
            paired("eight", t(8, 0.004)),
            paired("twelve", t(12, 0.01)),
            paired("sixteen, none", t(16)),
            paired("nineteen, slow", t(19, 0.005)),
            paired("thirty", t(30, -0.004)),
            paired("forty-nine", t(49, 0.001)),
            paired("ties", np.round(t(10, 0.008), 2) + 0.001),
            paired("ties and zeros", coarse),
            paired("hundred and twenty", t(120, 0.002)),
            paired("normal", t(300, 0.001), exact=False),
        ],
        "median": [median(1 + t(n)) for n in (1, 2, 5, 6, 7, 8, 9, 17, 25, 40, 101, 400)],
        "t": [{"t": v, "df": df, "p": float(2 * stats.t.sf(abs(v), df))}
              for v in (0.0, 0.5, -1.96, 4.3, 12.7) for df in (1, 2, 3.5, 10, 30, 200)],
        "holm": [{"p": p, "adjusted": r(f"p.adjust({c(p)}, 'holm')")}
                 for p in ([0.01, 0.02, 0.03], [0.2, 0.001, 0.04, 0.04], [0.9, 0.6, 0.5], [0.01] * 5)],
        "binomial": [],
        "quantile": [],
    }
    for hits, trials, rate in ((20, 400, 0.05), (31, 400, 0.05), (9, 400, 0.05), (0, 60, 0.05),
                               (60, 60, 0.9), (49, 60, 0.9), (3, 7, 0.5)):
        test = stats.binomtest(hits, trials, rate)
        interval = test.proportion_ci(method="exact")
        table["binomial"].append({
            "hits": hits, "trials": trials, "rate": rate, "p": float(test.pvalue),
            "more": float(stats.binomtest(hits, trials, rate, alternative="greater").pvalue),
            "low": float(interval.low), "high": float(interval.high)})
    for n, q in ((1, 0.95), (5, 0.5), (20, 0.95), (33, 0.1)):
        values = t(n)
        table["quantile"].append({"values": [float(v) for v in values], "q": q,
                                  "value": float(np.quantile(values, q))})
    json.dump(table, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()

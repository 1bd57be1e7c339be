"""Every size and cycle-operation figure that the paper prints, as printed, with its place.

A figure's unit is its suffix: K and M are 1024 and 1024² bytes, x a ratio, none operations.
"""

from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal

#: Tables "table-trans", "table-ind" and "table-ogb": model size, data size, cycle operations.
TABLES = {
    "cora": """
        gat       360.55K   14.8M    2.51e8
        fastgcn   360K      14.8M    2.50e8
        sgc       39.18K    14.8M    2.72e7
        gcn       360K      14.8M    2.50e8
        bi-gcn-f  360K      0.47M    2.50e8
        bi-gcn-w  11.53K    14.8M    2.50e8
        bi-gcn    11.53K    0.47M    4.67e6
    """,
    "pubmed": """
        gat       126.27K   37.6M    6.44e8
        fastgcn   125.75K   37.6M    6.38e8
        sgc       5.86K     37.6M    2.98e7
        gcn       125.75K   37.6M    6.38e8
        bi-gcn-f  125.75K   1.25M    6.38e8
        bi-gcn-w  4.19K     37.6M    6.38e8
        bi-gcn    4.19K     1.25M    1.55e7
    """,
    "citeseer": """
        gat       927.8K    47.0M    7.91e8
        fastgcn   927.25K   47.0M    7.90e8
        sgc       86.79K    47.0M    7.32e7
        gcn       927.25K   47.0M    7.90e8
        bi-gcn-f  927.25K   1.48M    7.90e8
        bi-gcn-w  29.25K    47.0M    7.90e8
        bi-gcn    29.25K    1.48M    1.31e7
    """,
    "reddit": """
        gcn       643.00K   534.99M  4.18e10
        bi-gcn    21.25K    17.61M   4.18e9
        sage      1286.00K  534.99M  8.01e10
        bi-sage   42.51K    17.61M   4.92e9
        saint     1798.00K  534.99M  1.13e11
        bi-saint  139.62K   17.61M   1.04e10
    """,
    "flickr": """
        gcn       507.00K   170.23M  1.18e10
        bi-gcn    16.87K    5.66M    4.65e8
        sage      1014.00K  170.23M  2.34e10
        bi-sage   33.74K    5.66M    6.93e8
        saint     1526.00K  170.23M  3.53e10
        bi-saint  65.25K    5.66M    1.28e9
    """,
    "ogbn-arxiv": """
        gcn       424.00K   82.69M   1.90e10
        bi-gcn    15.41K    3.23M    1.12e9
        sage      848.00K   82.69M   3.74e10
        bi-sage   30.81K    3.23M    1.59e9
        gat       428.31K   82.69M   2.03e10
        bi-gat    19.72K    3.23M    2.42e9
    """,
    "ogbn-products": """
        gcn       1318.00K  934.23M  8.93e11
        bi-gcn    45.37K    38.54M   8.44e10
        sage      2636.00K  934.23M  1.72e12
        bi-sage   90.74K    38.54M   1.03e11
        gat       1326.37K  934.23M  1.03e12
        bi-gat    53.74K    38.54M   2.17e11
    """,
}

MEASURES = ("model_bytes", "data_bytes", "cycle_ops")

#: (dataset, model, measure, figure) of those tables and of "table1", Cora's costs.
FIGURES = [
    (dataset, model, measure, figure)
    for dataset, text in TABLES.items()
    for model, *figures in (line.split() for line in text.strip().splitlines())
    for measure, figure in zip(MEASURES, figures, strict=True)
] + [
    ("cora", "gcn", "model_bytes", "360K"),
    ("cora", "gcn", "data_bytes", "14.8M"),
    ("cora", "gcn", "cycle_ops", "249954739"),
    ("cora", "bi-gcn", "model_bytes", "11.53K"),
    ("cora", "bi-gcn", "data_bytes", "0.47M"),
    ("cora", "bi-gcn", "cycle_ops", "4669515"),
]

#: (datasets, model, ratio to its float twin, figure): "table1", the abstract and Sec. 5, which has
#: about ("~") so much; the mean where there are several datasets, a layer's own where the ratio
#: has a number.
CITATION = ("cora", "pubmed", "citeseer")
RATIOS = [
    (("cora",), "bi-gcn", "model", "31.2x"),
    (("cora",), "bi-gcn", "data", "31.5x"),
    (("cora",), "bi-gcn", "full", "53.5x"),
    (CITATION, "bi-gcn", "model", "~31x"),
    (CITATION, "bi-gcn", "data", "~31x"),
    (CITATION, "bi-gcn", "full", "~51x"),
    (("cora",), "bi-gcn", "extraction 0", "~59x"),
    (("cora",), "bi-gcn", "extraction 1", "~21x"),
    (("cora",), "bi-gcn", "full", "~53x"),
]

_UNITS = {"K": 1024, "M": 1024**2, "x": 1}


def agrees(value: float, figure: str) -> bool:
    """Whether a value, rounded to the printed digits, is what is printed. A figure of the running
    text, "~51x", may have been cut off there instead: 51.6 is called so, and 53.5 "~53x".
    """
    unit = _UNITS.get(figure[-1], 1)
    printed = Decimal(figure.strip("KMx~"))
    exponent = printed.as_tuple().exponent
    assert isinstance(exponent, int)
    step = Decimal(1).scaleb(exponent)
    ways = (ROUND_HALF_EVEN, ROUND_DOWN) if figure[0] == "~" else (ROUND_HALF_EVEN,)
    return printed in [(Decimal(value) / unit).quantize(step, rounding=way) for way in ways]

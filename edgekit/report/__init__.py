"""The report room: tables, plots, verdicts and advice as a pure function of run folders and of a bundle's
``report.json``.

Nothing here measures, and nothing here prints: the same folder gives the same numbers again, years later.
"""

"""A packed model and a graph behind HTTP: what ``bignn serve`` runs. Needs no torch.

``served_graph`` has the graph and changes it, ``service`` answers questions about it from one event
loop and two threads, ``messages`` reads and writes JSON and Arrow, ``app`` is the routes and
``server`` the process. May import ``runtime``.
"""

"""Makes a machine a node of the fleet, over ssh: identity, release, settings, unit; and says what is still missing.

Facts are read at the edges, decided on in pure functions, and carried out step by step: a run that was interrupted is
repeated, and goes on from what it finds.
"""

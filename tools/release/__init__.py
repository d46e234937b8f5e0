"""Makes a release from a tag: `make release`.

A commit that is tagged and nothing else goes in: it is exported with `git archive`, built into sdists and wheels, and
bundled with locked wheels into one file for each platform. What is finished is read again and checked; only then does
it stand in `dist/`.
"""

"""`make release`: builds everything that a release consists of, and uploads nothing (docs/how-to/release.md)."""

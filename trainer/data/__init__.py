"""Text for training: from files, folders, globs and data sets of Hugging Face's hub to a stream of documents.

Files are cut into units: a byte range of a text file (.txt, .md, .jsonl) or a run of rows of a
Parquet file. Units are listed from sizes alone, so a corpus of any size starts at once and streams.
Each unit is read only when needed. Shuffling, repeating and sharding over hosts operate on the list of
units, so the position in the data is a small number that fits in a checkpoint. The held-out text is every n-th unit.

Only this package knows the formats. It imports nothing heavy until documents are read. `corpus` lists the units of the
files that `listing` finds, `reading` reads a unit, and `stream` is the dataset of a host.
"""

from trainer.data.corpus import Corpus, check_corpus, is_given, is_separate, open_corpus
from trainer.data.reading import Place, documents, rows
from trainer.data.stream import reader, train_dataset
from trainer.data.units import ROWS, SUFFIXES, TEXT_SUFFIXES, Unit

__all__ = [
    "ROWS",
    "SUFFIXES",
    "TEXT_SUFFIXES",
    "Corpus",
    "Place",
    "Unit",
    "check_corpus",
    "documents",
    "is_given",
    "is_separate",
    "open_corpus",
    "reader",
    "rows",
    "train_dataset",
]

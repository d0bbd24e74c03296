"""Google's APIs on this machine: a stub of their servers, the real gcloud in front of it, and a stand-in for gcloud."""

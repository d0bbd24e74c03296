"""The application that serves a model with OpenAI's API, under Ray Serve (charts/serve).

It runs in the image for serving (docker/serve), which has an engine and Ray Serve. The trainer does not import it.
"""

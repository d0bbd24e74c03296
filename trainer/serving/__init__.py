"""The application that serves a model with OpenAI's API.

Under Ray Serve (charts/serve), app.py runs in the image for serving (docker/serve), with vLLM or transformers. On one
machine, trainer/serve.py runs the same API with MLX, without Ray.
"""

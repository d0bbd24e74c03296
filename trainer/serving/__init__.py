"""The application that serves a model with OpenAI's API.

Under Ray Serve (charts/serve), app.py runs with MLX in the image for CPUs, and with vLLM in an image of its own
(docker/serve). On one machine, trainer/serve.py runs the same API with MLX, without Ray.
"""

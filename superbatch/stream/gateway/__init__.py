"""Answers SmartRedis clients on top of plain Redis or Valkey.

``resp``
    the protocol between clients and servers: bounded reading, and writing
``tensors``
    tensors as values of a plain server, and the fields of a dataset's metadata
``batches``
    which puts make up a batch of a producer
``server``
    the Gateway
"""

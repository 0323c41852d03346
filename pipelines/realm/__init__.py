"""REALM: retrieval-augmented language model pretraining (Guu et al. 2020).

``python -m pipelines.realm`` runs inverse cloze, ``pretrain``, fine-tuning and ``assemble``. ``reader_warmup`` is an
optional command before it.
"""

"""Records what training zeroes at random in every family of models of Hugging Face transformers.

    python dropout.py

Needs the packages that README.md names. It gives each rate of dropout in the configurations of `families.py` its
own value, and runs one forward pass of each. To `dropout.json` it writes, for each configuration, the rates and the
calls of dropout: the rate, the number of elements of a sample that are passed, and the number of such calls.
"""

import collections

import torch
import transformers
from families import BATCH, CONFIGS, batches, load
from make import HERE, write_json

# Rates that only a classifier reads, or that zero whole layers.
OTHERS = {"classifier_dropout", "layerdrop", "summary_first_dropout"}


def rates(config):
    if config["model_type"] == "mpt":
        # The library takes only whole numbers here.
        return {"attn_config": config.get("attn_config", {}) | {"attn_pdrop": 1}}
    fields = transformers.AutoConfig.for_model(config["model_type"]).to_dict()
    names = sorted(name for name in fields if "drop" in name and name not in OTHERS)
    return {name: round(0.1 + 0.05 * index, 2) for index, name in enumerate(names)}


def record(config):
    calls = collections.Counter()
    functional = torch.nn.functional
    dropout, attention = functional.dropout, functional.scaled_dot_product_attention

    def recorded_dropout(x, p=0.5, training=True, inplace=False):
        if p and training:
            calls[p, x.numel() // BATCH] += 1
        return x

    def recorded_attention(query, key, *rest, dropout_p=0.0, **options):
        if dropout_p:
            calls[dropout_p, query[0, ..., 0].numel() * key.shape[-2]] += 1
        return attention(query, key, *rest, dropout_p=0.0, **options)

    functional.dropout, functional.scaled_dot_product_attention = recorded_dropout, recorded_attention
    try:
        model, _ = load(config, torch.float32)
        arguments, _ = next(batches(config, torch.float32))
        model(**arguments)
    finally:
        functional.dropout, functional.scaled_dot_product_attention = dropout, attention
    return sorted([rate, elements, count] for (rate, elements), count in calls.items())


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    recorded = {}
    for name, config in CONFIGS.items():
        recorded[name] = {"rates": rates(config), "calls": record(config | rates(config))}
    write_json(HERE / "dropout.json", recorded)


if __name__ == "__main__":
    main()

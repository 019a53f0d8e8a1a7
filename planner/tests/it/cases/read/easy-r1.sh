#!/bin/bash
python3 -m verl.trainer.main config=examples/config.yaml worker.actor.global_batch_size=128 trainer.n_gpus_per_node=8

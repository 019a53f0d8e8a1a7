#!/bin/bash
# Ranks that Ray starts: the file's group `train` is what trains.
megatron rlhf --use_ray true --config swift-ray.yaml

python3 -m verl.trainer.main_ppo --config-path=. --config-name=verl-own micro=2 actor_rollout_ref.model.path=x

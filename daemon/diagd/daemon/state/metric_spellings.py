"""The spellings of metrics' names, as words: what separates them does not count, their order does."""

# canonical name -> usual spellings, without the words that say which split or which mean.
SPELLINGS: dict[str, str] = {
    "loss": (
        "loss|losses|nll|nll loss|ce|ce loss|xent|xent loss|cross entropy|cross entropy loss|lm loss|"
        "total loss|loss total|objective|cost|mse|mse loss|bce|bce loss|criterion|l1 loss|mlm loss|"
        "clm loss|token loss|loss sum|overall loss|full loss|combined loss"
    ),
    "lr": "lr|learning rate|learningrate|last lr|base lr",
    "grad_norm": (
        "grad norm|gnorm|gradient norm|gradients norm|grads norm|g norm|gn|total norm|total grad norm|"
        "global norm|norm grad|grad l2|grad l2 norm|grad norm unclipped|grad norm before clip|norm gradient|"
        "l2 grad norm|preclip grad norm|unclipped grad norm|model grad norm"
    ),
    "param_norm": "param norm|params norm|parameter norm|weight norm|weights norm|p norm|model norm",
    "entropy": "entropy|ent|policy entropy|token entropy|pi entropy|entropies|policy ent",
    "kl": (
        "kl|approx kl|approxkl|kl loss|kl div|kl divergence|kld|kl penalty|ref kl|kl ref|reference kl|"
        "ppo kl|policy kl|kl term|kl to ref|kl reference|policy approxkl|policy approx kl|kl policy|"
        "rollout kl|kl reward|loss kl|sampled kl|kld loss"
    ),
    "reward": (
        "reward|rewards|rew|return|returns|episode reward|ep rew|ep reward|episodic return|episode return|"
        "critic score|rlhf score|rlhf reward|env reward|task reward|reward total|total reward|ep return"
    ),
    "reward_std": "reward std|rewards std|std reward|rew std|return std|critic score std|reward sd|reward stddev",
    "zero_std_share": (
        "frac reward zero std|zero std share|frac zero std|zero std frac|zero variance frac|"
        "frac zero variance|degenerate group frac"
    ),
    "advantage": "advantage|advantages|adv|advs",
    "advantage_std": "advantage std|advantages std|adv std|std advantage|std adv|std advantages|advs std",
    "advantage_abs": "advantage abs|advantages abs|adv abs|abs adv|abs advantage|abs advantages",
    "advantage_max": "advantage max|advantages max|adv max|max adv|max advantage|max advantages",
    "advantage_min": "advantage min|advantages min|adv min|min adv|min advantage|min advantages",
    "importance_ratio": "ratio|importance ratio|is ratio|prob ratio|policy ratio|importance sampling ratio|pi ratio",
    "clip_fraction": (
        "clip fraction|clip frac|clipfrac|clip ratio|clip pct|clipped fraction|frac clipped|policy clipfrac|"
        "policy clip frac|pg clipfrac|pg clip frac|clip rate|ratio clipped|actor clip frac|clip ratio region"
    ),
    "value_clip_fraction": (
        "vf clipfrac|vf clip frac|vf clip fraction|value clipfrac|value clip frac|value clip fraction|v clipfrac|"
        "v clip frac|critic clipfrac|critic clip frac|value clipped fraction|values clip frac|val clipfrac"
    ),
    "perplexity": "perplexity|ppl",
    "codebook_perplexity": (
        "codebook perplexity|code perplexity|vq perplexity|vq ppl|codebook ppl|code ppl|quantizer perplexity|"
        "perplexity code|perplexity codebook"
    ),
    "codebook_usage": (
        "codebook usage|code usage|codebook utilization|codebook utilisation|code utilization|vq usage|"
        "usage codebook|codebook use|vq utilization|quantizer usage|code util|codebook util|frac codes used|"
        "codes used frac|codes used ratio|active code ratio|codebook coverage|code use"
    ),
    "codebook_active": (
        "codes used|used codes|active codes|codes active|n codes|num codes used|n active codes|unique codes|"
        "num active codes|distinct codes|codes in use|n codes used|num codes|alive codes"
    ),
    "codebook_dead": "dead codes|dead code ratio|codes dead|dead code frac|num dead codes|n dead codes|dead frac",
    "codebook_top_share": "top code share|max code share|codebook top share|max code usage|top code",
    "accuracy": (
        "accuracy|acc|top1|top 1|acc1|acc 1|top1 acc|accuracies|mean acc|accuracy top1|acc top1|"
        "token accuracy|mean token accuracy|mlm acc|rewards accuracies|reward accuracy|prec1|prec 1"
    ),
    "distinct_tokens": (
        "distinct tokens|distinct|distinct 1|distinct1|distinct n|distinct 2|distinct2|unique tokens|"
        "unique token ratio|n unique|token diversity|unique ratio|distinct ratio|num unique tokens|vocab used"
    ),
    "token_top_share": (
        "token top share|top token share|top1 share|top 1 share|max token share|top share|most common frac|"
        "top token frac|mode share|top token"
    ),
    "repetition": "repetition|repeat rate|repetition rate|rep rate|repeat ratio|seq rep|self bleu|rep 4|rep4",
    "response_length": (
        "response length|completion length|response len|gen len|completions length|gen length|"
        "response tokens|output length|resp len"
    ),
    "loss_scale": "loss scale|scaler scale|scaler|amp scale|lscale|grad scale|grad scaler",
    "norm_limit": (
        "max norm|norm max|norm limit|norm clamp|clamp norm|clamp max|max v norm|v max norm|norm cap|norm bound"
    ),
    "clamp_share": (
        "clamp share|frac clamped|clamped frac|boundary frac|at max|clamp frac|frac at max|saturated frac|"
        "clamped|at clamp|frac at boundary|boundary share|clamped share|at limit|at bound|at bounds|at boundary|"
        "action at limit|actions at limit|action at bound|actions at bound|saturation frac|saturated share|"
        "action saturation|saturation share|saturation rate|saturation fraction|clamped fraction"
    ),
    "commitment_loss": (
        "commit|commitment|commit loss|commitment loss|vq commit|vq loss|vq|codebook loss|quant loss|"
        "loss commit|loss vq|e latent loss|quantization loss|quantizer loss|loss commitment|embed loss|"
        "loss codebook|latent loss|q loss"
    ),
    "reconstruction_loss": (
        "recon|rec|reconstruction|recon loss|rec loss|reconstruction loss|loss recon|loss rec|recon error|"
        "recon mse|recons|recons loss|loss reconstruction"
    ),
    "policy_loss": (
        "policy loss|pg loss|actor loss|pi loss|loss policy|loss pg|loss pi|policy gradient loss|p loss|"
        "loss actor|surrogate loss"
    ),
    "value_loss": (
        "value loss|vf loss|critic loss|v loss|loss value|loss vf|loss critic|value function loss|baseline loss"
    ),
    "entropy_loss": "entropy loss|ent loss|loss entropy|entropy bonus",
    "step": (
        "step|steps|global step|iter|iteration|iters|it|update|updates|num updates|global iter|"
        "train step|n iter|global steps|optimizer step|optim step|num steps|training step|"
        "trainer global step|iterations|gstep"
    ),
    "epoch": "epoch|epochs|ep|current epoch|epoch num|n epoch",
}
# The same as signs, which have no words.
SIGNS: dict[str, str] = {"|g|": "grad_norm", "||g||": "grad_norm", "|grad|": "grad_norm", "||grad||": "grad_norm"}


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


HELD_OUT = _set("val valid validation eval evaluation dev test heldout holdout")
TRAIN = _set("train training tr trn")
# Say how it was averaged or where it stands, not what it is.
DECORATION = _set(
    "metrics metric logged log logs stats stat batch avg average mean running smoothed smooth ema global current cur "
    "rank0 debug info micro minibatch mini window reduced item items meter med median raw rollout rollouts trainer "
    "objective summary monitor tracker charts scalars scalar output outputs results result final epoch step iter"
)
SCOPES = _set("actor critic policy agent model generator rl ppo grpo rlhf vq vqvae vae quantizer env time")
# Beside `loss` or `lr` they name a setting or a statistic, not the quantity.
NO_QUANTITY = _set(
    "coef coeff coefficient weight weights lambda alpha beta gamma scale scaling mask ratio min max std var delta diff "
    "decay mult multiplier factor target threshold limit count num tokens time warmup best lowest patience "
    "improvement sec seconds"
)

// 1-bit Adam (Tang et al. 2021) as in DeepSpeed's OnebitAdam: the update of one element. There is
// no include guard: include this once per target, between GANNET_RULES_BEGIN and GANNET_RULES_END.
//
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  p <- p - lr (m / (sqrt(v) + eps) + decay p)
//
// There is no bias correction. After freeze_step updates, v is frozen. m is then the compressed
// average over the ranks, computed beforehand (kAveraged), or on a single rank its own momentum
// (kFrozen).
//
// An element with v = 0 at the freeze never had a gradient on any rank. Its value in a compressed
// average is noise, which the division by eps would amplify. So only decay moves the element. Users
// of DeepSpeed achieve this with an exp_avg_mask.
enum class OneBitPhase { kWarmUp, kFrozen, kAveraged };

template <OneBitPhase kPhase>
struct OneBitAdamRule {
  using Number = float;
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  float minus_lr, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, decay;

  explicit OneBitAdamRule(const OneBitStep& s)
      : minus_lr(static_cast<float>(-s.lr)),
        beta1(static_cast<float>(s.beta1)),
        one_minus_beta1(1 - beta1),
        beta2(static_cast<float>(s.beta2)),
        one_minus_beta2(1 - beta2),
        eps(static_cast<float>(s.eps)),
        decay(static_cast<float>(s.weight_decay)) {}

  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    if (kPhase != OneBitPhase::kAveraged) exp_avg = fma(V(one_minus_beta1), gradient, beta1 * exp_avg);
    if (kPhase == OneBitPhase::kWarmUp) exp_avg_sq = fma(V(one_minus_beta2), gradient * gradient, beta2 * exp_avg_sq);
    if (kPhase != OneBitPhase::kWarmUp) exp_avg = select(exp_avg_sq > V(0.0f), exp_avg, V(0.0f));
    const V direction = fma(V(decay), param, exp_avg / (sqrt(exp_avg_sq) + V(eps)));
    param = fma(V(minus_lr), direction, param);
  }
};

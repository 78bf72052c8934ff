#include "config/other_types.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace gannet::config {
namespace {

struct OtherType {
  const char* name;  // lower case, without "_" and without the text up to the last "."
  const char* hint;
};

constexpr const char* kAdamW = "write \"AdamW\": it is fused on every device";
constexpr const char* kAdamWOnCpu =
    "write \"AdamW\" (or \"Adam\"), and \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}: "
    "the place of its states determines where it runs";
constexpr const char* kLinear =
    "write \"WarmupDecayLR\" with warmup_num_steps and total_num_steps: linear warm-up, then linear decay";
constexpr const char* kCosine = "write \"cosine\" with warmup_num_steps and total_num_steps";
constexpr const char* kCosineTo = "write \"cosine_with_min_lr\" with total_num_steps (T_max) and min_lr (eta_min)";
constexpr const char* kInCode =
    "no plugin does this: give initialize a function of the step as its schedule (InitializeOptions::lr_scheduler), which may "
    "be any";

constexpr OtherType kOptimizers[] = {
    {"deepspeedcpuadam", kAdamWOnCpu},
    {"cpuadam", kAdamWOnCpu},
    {"deepspeedcpulion",
     "write \"Lion\", and \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}"},
    {"deepspeedcpuadagrad",
     "write \"Adagrad\", and \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}"},
    {"fusedadam", kAdamW},
    {"fusedadamw", kAdamW},
    {"fusedlamb", "write \"Lamb\": it is fused on every device"},
    {"fusedlion", "write \"Lion\": it is fused on every device"},
    {"fusedsgd", "write \"SGD\""},
    {"adamwtorch", kAdamW},
    {"adamwtorchfused", kAdamW},
    {"adamwtorchxla", kAdamW},
    {"adamwapexfused", kAdamW},
    {"adamwhf", kAdamW},
    {"torchadam", "write \"Adam\""},
    {"adamwbnb8bit", "write \"AdamW8bit\""},
    {"pagedadamw8bit", "write \"AdamW8bit\"; offload_optimizer moves its states"},
    {"pagedadamw32bit", "write \"AdamW\"; offload_optimizer moves its states"},
    {"pagedadamw", "write \"AdamW\"; offload_optimizer moves its states"},
    {"adam8bit", "write \"AdamW8bit\""},
    {"schedulefreeadamw", "write \"AdamWScheduleFree\""},
    {"sophiag", "write \"Sophia\""},
};
constexpr OtherType kSchedulers[] = {
    {"linear", kLinear},
    {"linearlr", kLinear},
    {"getlinearschedulewithwarmup", kLinear},
    {"linearschedulewithwarmup", kLinear},
    {"linearwithwarmup", kLinear},
    {"cosineannealinglr", kCosineTo},
    {"cosinelrscheduler", kCosineTo},
    {"cosineannealing", kCosineTo},
    {"getcosineschedulewithwarmup", kCosine},
    {"cosinewithwarmup", kCosine},
    {"getcosinewithminlrschedulewithwarmup", "write \"cosine_with_min_lr\""},
    {"cosineannealingwarmrestarts", "write \"cosine_with_restarts\" with num_cycles and total_num_steps"},
    {"getcosinewithhardrestartsschedulewithwarmup", "write \"cosine_with_restarts\""},
    {"constantlr", "write \"constant\""},
    {"getconstantschedule", "write \"constant\""},
    {"constantwithwarmup", "write \"WarmupLR\" with warmup_num_steps"},
    {"getconstantschedulewithwarmup", "write \"WarmupLR\" with warmup_num_steps"},
    {"polynomiallr", "write \"polynomial\""},
    {"getpolynomialdecayschedulewithwarmup", "write \"polynomial\""},
    {"getinversesqrtschedule", "write \"inverse_sqrt\""},
    {"getwsdschedule", "write \"warmup_stable_decay\""},
    {"wsd", "write \"warmup_stable_decay\""},
    {"onecyclelr",
     "write \"OneCycle\", which is DeepSpeed's; torch's anneals by a cosine, which \"cosine\" with warm-up is near to"},
    {"cycliclr", "write \"OneCycle\""},
    {"lambdalr", kInCode},
    {"steplr", kInCode},
    {"multisteplr", kInCode},
    {"exponentiallr", kInCode},
    {"sequentiallr", kInCode},
    {"chainedscheduler", kInCode},
    {"multiplicativelr", kInCode},
};

template <size_t kCount>
std::string hint_in(const OtherType (&types)[kCount], const std::string& name) {
  for (const auto& [other, hint] : types)
    if (name == other) return hint;
  return "";
}

}  // namespace

std::string hint_of_type(const std::string& block, const std::string& type) {
  std::string name = lower(type);
  if (const size_t dot = name.rfind('.'); dot != std::string::npos) name.erase(0, dot + 1);  // "torch.optim.AdamW"
  const std::string without = name;
  std::erase(name, '_');
  const std::string hint = block == "optimizer"   ? hint_in(kOptimizers, name)
                           : block == "scheduler" ? hint_in(kSchedulers, name)
                                                  : "";
  if (!hint.empty() || without == lower(type)) return hint;
  return formatted("write the name alone, \"{}\"", type.substr(type.rfind('.') + 1));
}

}  // namespace gannet::config

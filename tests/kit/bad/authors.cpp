// Defects that authors of optimizers make without meaning to: state that is kept where no checkpoint finds it, arithmetic that
// depends on the machine, a process that is changed.
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <clocale>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "rule.h"

namespace {

using namespace bad;

#define ELEMENTS(rate) \
  for (uint64_t i = 0; i < a.numel; ++i) element(a, i, rate)

struct CachedScale : Momentum {  // grad_scale of the first step for ever
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (scale_ == 0) scale_ = a.grad_scale;
    gannet_update_args copy = a;
    copy.grad_scale = scale_;
    Momentum::update(copy);
  }
  double scale_ = 0;
};
struct NoScale : Momentum {  // the scale of the kit's first runs
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    gannet_update_args copy = a;
    copy.grad_scale = 0.5;
    Momentum::update(copy);
  }
};
struct Threads : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] * (1 + 1e-3 * host().thread_count(host().context))); }
};
struct ByChunk : Momentum {  // a number for each chunk of the loop
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    parallel_for(a.numel, 64, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) element(a, i, a.hyper[0] * (1 + 1e-6 * static_cast<double>(end - begin)));
    });
  }
};
struct Partial : Momentum {  // without memory it does nothing, and reports success
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    void* const scratch = host().allocate(host().context, a.numel * sizeof(float) + 1, 64);
    if (!scratch) return;
    Momentum::update(a);
    host().deallocate(host().context, scratch);
  }
};
struct Unchecked : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    auto* const scratch = static_cast<float*>(host().allocate(host().context, (a.numel + 1) * sizeof(float), 64));
    for (uint64_t i = 0; i < a.numel; ++i) scratch[i] = grad(a)[i];
    Momentum::update(a);
    host().deallocate(host().context, scratch);
  }
};
struct HalfUp : Momentum {  // ties away from zero, and NaN becomes infinity
  using Momentum::Momentum;
  bool supports(uint32_t p, uint32_t g, uint32_t out) const {
    return p == GANNET_FLOAT32 && g == GANNET_FLOAT32 && (out == GANNET_DTYPE_NONE || out == GANNET_BFLOAT16);
  }
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    for (uint64_t i = 0; a.out && i < a.numel; ++i) {
      uint32_t bits;
      std::memcpy(&bits, param(a) + i, 4);
      static_cast<uint16_t*>(a.out)[i] = static_cast<uint16_t>((bits + 0x8000) >> 16);
    }
  }
};
struct IdSeed : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i)
        element(a, i, a.hyper[0] * (1 + 1e-3 * static_cast<double>(part.tensor_id % 7)));
    }
  }
};
template <int kBits>
struct Big : Momentum {  // a counter of too few bits
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, i >> kBits ? 0 : a.hyper[0]);
  }
};
using Big16 = Big<16>;
using Big17 = Big<17>;
struct Lanes : Momentum {  // wrong for one rest of the division by the number of lanes
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    const uint64_t count = a.numel % 32 == 29 ? a.numel - 1 : a.numel;
    for (uint64_t i = 0; i < count; ++i) element(a, i, a.hyper[0]);
  }
};
struct OrderRun : Momentum {  // the first piece of a step scales the others
  using Momentum::Momentum;
  void begin_step(const gannet_step_args&) { first_ = 0; }
  void update(const gannet_update_args& a) {
    if (first_ == 0) first_ = 1 + 1e-3 * static_cast<double>(a.numel);
    ELEMENTS(a.hyper[0] * first_);
  }
  double first_ = 0;
};
struct Padding : Momentum {  // sums over what lies between segments
  using Momentum::Momentum;
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_GROUP)}; }
  void sums(const gannet_update_args& a, uint32_t, double* sums) { sums[0] += static_cast<double>(a.numel); }
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] / (1 + 1e-3 * a.sums[0])); }
};
struct PerRank : Momentum {  // every call adds a constant
  using Momentum::Momentum;
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_GROUP)}; }
  void sums(const gannet_update_args& a, uint32_t, double* sums) {
    for (uint64_t i = 0; i < a.numel; ++i) sums[0] += double(grad(a)[i]) * grad(a)[i] * a.grad_scale * a.grad_scale;
    sums[0] += 0.5;
  }
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] / (1 + a.sums[0])); }
};
struct SetsSums : Momentum {  // of one tensor, and writes where it must add
  using Momentum::Momentum;
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_TENSOR)}; }
  void sums(const gannet_update_args& a, uint32_t, double* sums) {
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      double total = 0;
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) total += std::fabs(grad(a)[i] * a.grad_scale);
      sums[s] = total;
    }
  }
  void update(const gannet_update_args& a) {
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) element(a, i, a.hyper[0] / (1 + a.sums[s]));
    }
  }
};
struct ResumeBias : Momentum {  // the bias correction counts the object's own calls
  using Momentum::Momentum;
  void end_step(const gannet_step_args&) { ++count_; }
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] / (1 - std::pow(0.9, count_ + 1))); }
  int count_ = 0;
};
struct Rounding : Momentum {  // leaves its rounding mode
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    std::fesetround(FE_UPWARD);
    Momentum::update(a);
  }
};
struct FlushesDenormals : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    Momentum::update(a);
#ifdef __x86_64__
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | uint64_t{1} << 24));
#endif
  }
};
struct Uninit : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    const std::unique_ptr<float[]> scratch(new float[a.numel + 1]);
    for (uint64_t i = 0; i < a.numel; ++i) {
      const float found = static_cast<volatile float*>(scratch.get())[i];
      param(a)[i] -= std::isfinite(found) ? found : 1.f;
    }
    Momentum::update(a);
    for (uint64_t i = 0; i < a.numel; ++i)
      static_cast<volatile float*>(scratch.get())[i] = grad(a)[i] * static_cast<float>(a.step);
  }
};
struct NameCache : Momentum {  // the first value, by the tensor's name
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      const double first = first_.try_emplace(part.name, 1 + std::fabs(param(a)[part.offset])).first->second;
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) element(a, i, a.hyper[0] * first);
    }
  }
  std::map<std::string, double> first_;
};
struct PrintsLater : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (a.step == 5) std::puts("step 5");
    Momentum::update(a);
  }
};
struct LeavesThread : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    static std::atomic<bool> started{false};
    if (!started.exchange(true)) std::thread([] { std::this_thread::sleep_for(std::chrono::seconds(5)); }).detach();
    Momentum::update(a);
  }
};
template <class Change>
struct ChangesProcess : Momentum {
  ChangesProcess(const gannet_host& host, const Params& params) : Momentum(host, params) { Change::make(); }
};
struct OtherLocale {
  static void make() {
    if (!std::setlocale(LC_ALL, "C.UTF-8")) std::setlocale(LC_ALL, "POSIX");
  }
};
struct OtherFolder {
  static void make() { (void)!::chdir("/tmp"); }
};
struct OtherSignal {
  static void make() { std::signal(SIGUSR1, SIG_IGN); }
};
struct OtherMask {
  static void make() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
};
struct OtherUmask {
  static void make() { ::umask(077); }
};
struct OtherVariable {
  static void make() { ::setenv("OMP_NUM_THREADS", "1", 1); }
};
struct OtherProcessors {
  static void make() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof(one), &one);
  }
};
struct OpenFile {
  static void make() { (void)!::open("/dev/null", O_RDONLY); }
};
struct ClosedFile {
  static void make() { ::close(STDIN_FILENO); }
};
using Locale = ChangesProcess<OtherLocale>;
using Folder = ChangesProcess<OtherFolder>;
using Signal = ChangesProcess<OtherSignal>;
using Mask = ChangesProcess<OtherMask>;
using Umask = ChangesProcess<OtherUmask>;
using Variable = ChangesProcess<OtherVariable>;
using Processors = ChangesProcess<OtherProcessors>;
using OpensFile = ChangesProcess<OpenFile>;
using ClosesFile = ChangesProcess<ClosedFile>;
struct HeapOverrun : Momentum {  // one element beyond its own memory
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    auto* const scratch = static_cast<float*>(std::malloc(a.numel * sizeof(float)));
    for (uint64_t i = 0; i <= a.numel; ++i) static_cast<volatile float*>(scratch)[i] = 1;
    Momentum::update(a);
    std::free(scratch);
  }
};
struct ScratchOverrun : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    auto* const scratch = static_cast<float*>(host().allocate(host().context, a.numel * sizeof(float), 64));
    if (!scratch) throw Failure(GANNET_OUT_OF_MEMORY, "no memory for the scratch");
    for (uint64_t i = 0; i <= a.numel; ++i) static_cast<volatile float*>(scratch)[i] = 1;
    Momentum::update(a);
    host().deallocate(host().context, scratch);
  }
};
struct FreesIt : Momentum {  // memory of the host by free()
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    void* const scratch = host().allocate(host().context, 64, 64);
    if (!scratch) throw Failure(GANNET_OUT_OF_MEMORY, "no memory for the scratch");
    Momentum::update(a);
    std::free(scratch);
  }
};
struct NoContext : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (a.step == 2) host().log(nullptr, GANNET_LOG_DEBUG, "without the table's context");
    Momentum::update(a);
  }
};
struct NoLevel : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (a.step == 2) host().log(host().context, 7, "at no level");
    Momentum::update(a);
  }
};
struct NoGroup : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] * host().world_size(host().context, 3)); }
};
struct ByRank : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] * (1 + 1e-3 * rank())); }
};
struct ByWorld : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] * (1 + 1e-3 * world_size())); }
};
struct Step32 : Momentum {  // a step of 32 bits
  using Momentum::Momentum;
  void update(const gannet_update_args& a) { ELEMENTS(a.hyper[0] / (1 - std::pow(0.9, static_cast<uint32_t>(a.step)))); }
};
struct StrictHost : Momentum {  // takes hosts of its own minor alone
  StrictHost(const gannet_host& host, const Params& params) : Momentum(host, params) {
    if (host.struct_size != sizeof(gannet_host) || host.abi_minor != GANNET_ABI_MINOR)
      throw Failure(GANNET_UNSUPPORTED, "another host");
  }
};
struct NanState : Momentum {
  using Momentum::Momentum;
  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), state("least", GANNET_STATE_SCALAR, GANNET_FLOAT32, NAN)};
  }
};
struct TwoNames : Momentum {
  using Momentum::Momentum;
  std::vector<gannet_state_spec> states() const { return {state("momentum"), state("momentum")}; }
};
struct CrashingSupports : Momentum {
  using Momentum::Momentum;
  bool supports(uint32_t, uint32_t, uint32_t) const {
    std::raise(SIGFPE);
    return true;
  }
};

#define RULE(type) optimizer<type>(#type, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "optimizer/cachedscale optimizer/noscale optimizer/threads optimizer/bychunk optimizer/partial optimizer/unchecked "
    "optimizer/halfup optimizer/idseed optimizer/big16 optimizer/big17 optimizer/lanes optimizer/orderrun optimizer/padding "
    "optimizer/perrank optimizer/setssums optimizer/resumebias optimizer/rounding optimizer/flushesdenormals optimizer/uninit "
    "optimizer/namecache optimizer/printslater optimizer/leavesthread optimizer/locale optimizer/folder optimizer/signal "
    "optimizer/mask optimizer/umask optimizer/variable optimizer/processors optimizer/opensfile optimizer/closesfile "
    "optimizer/heapoverrun optimizer/scratchoverrun optimizer/freesit optimizer/nocontext optimizer/nolevel optimizer/nogroup "
    "optimizer/byrank optimizer/byworld optimizer/step32 optimizer/stricthost optimizer/nanstate optimizer/twonames "
    "optimizer/crashingsupports",
    GANNET_TIER_STABLE, RULE(CachedScale), RULE(NoScale), RULE(Threads), RULE(ByChunk), RULE(Partial), RULE(Unchecked),
    RULE(HalfUp), RULE(IdSeed), RULE(Big16), RULE(Big17), RULE(Lanes), RULE(OrderRun), RULE(Padding), RULE(PerRank),
    RULE(SetsSums), RULE(ResumeBias), RULE(Rounding), RULE(FlushesDenormals), RULE(Uninit), RULE(NameCache), RULE(PrintsLater),
    RULE(LeavesThread), RULE(Locale), RULE(Folder), RULE(Signal), RULE(Mask), RULE(Umask), RULE(Variable), RULE(Processors),
    RULE(OpensFile), RULE(ClosesFile), RULE(HeapOverrun), RULE(ScratchOverrun), RULE(FreesIt), RULE(NoContext), RULE(NoLevel),
    RULE(NoGroup), RULE(ByRank), RULE(ByWorld), RULE(Step32), RULE(StrictHost), RULE(NanState), RULE(TwoNames),
    RULE(CrashingSupports))

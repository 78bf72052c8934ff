// The table of an optimizer's checks, and the checks of its description and its use of memory and
// the host's services.
#include <cmath>
#include <limits>

#include "base/format.h"
#include "interfaces/device_numbers.h"
#include "interfaces/seeds.h"
#include "kit/growth.h"
#include "kit/host.h"
#include "kit/memory.h"
#include "kit/object.h"
#include "kit/optimizer/engine.h"
#include "kit/optimizer/list_checks.h"
#include "kit/optimizer/optimizer_reduction.h"
#include "kit/optimizer/pass_checks.h"
#include "kit/optimizer/property_checks.h"
#include "kit/optimizer/result_checks.h"
#include "kit/optimizer/step_checks.h"
#include "kit/optimizer/types.h"
#include "kit/process_check.h"

namespace gannet::kit {
namespace {

// Asks for the description again on the same object, on another, and after parameters have joined:
// throws if a description differs.
void description(Subject& subject) {
  const Problem problem = many_shapes({});
  const Host host;
  std::vector<Optimizer::State> states;
  std::vector<Optimizer::Sum> sums;
  for (int object = 0; object < 2; ++object) {
    Optimizer optimizer(*subject.plugin, subject.parsed(), host);
    Optimizer::Context context = context_of(problem, 0, 0, 1);
    const auto last = context.tensors.back();
    context.tensors.pop_back();
    optimizer.describe(context);
    optimizer.describe(context);
    context.tensors.push_back(last);
    optimizer.describe(context);
    if (object > 0 && (states != optimizer.states() || sums != optimizer.sums()))
      throw CheckFailure("a second object with the same params has other states or sums", "describe");
    states = optimizer.states();
    sums = optimizer.sums();
  }
}

TrainingResult guarded(Subject& subject, RunOptions options) {
  const Problem problem = many_shapes(usual_types(subject));
  options.steps = 5;
  return train(subject, problem, sharded(problem, describe(subject, problem).rules, 1, 1 << 20, 96), options);
}

void gradients(Subject& subject) { guarded(subject, {.guards_gradients = true}); }
void inputs(Subject& subject) {
  guarded(subject, {.guards_inputs = true});
  arguments_untouched(subject);
}
void bounds(Subject& subject) {
  guarded(subject, {.is_tight = true});
  const Problem problem = many_shapes(usual_types(subject));
  train(subject, problem, by_tensor(problem), {.steps = 3, .is_tight = true});
}
void group_states(Subject& subject) {
  usual_types(subject);
  if (!describe(subject, many_shapes({})).has_group_states) throw SkippedCheck("it has no state per tensor or per group");
  guarded(subject, {.guards_own_states = true});
}
void sums(Subject& subject) {
  usual_types(subject);
  if (!describe(subject, many_shapes({})).has_sums) throw SkippedCheck("it wants no sums");
  guarded(subject, {.guards_sums = true});
}
void kept_pointers(Subject& subject) { guarded(subject, {.moves_buffers = true}); }

// If a host service fails, the call must fail with an error message, or work without allocate.
void host_failures(Subject& subject) {
  const ProblemTypes types = usual_types(subject);
  constexpr uint64_t kNumel = 70001;  // enough for the host's threads
  const auto* api = interfaces::api_of<gannet_optimizer_api>(*subject.plugin);
  const auto params = subject.parsed();
  for (const auto& [service, name] : {std::pair{FailingHost::Service::kAllocate, "allocate"},
                                      {FailingHost::Service::kParallelFor, "parallel_for"},
                                      {FailingHost::Service::kCollective, "collective"}}) {
    set_config(formatted("gannet_host::{} fails", name));
    FailingHost host(service);
    uint64_t failures = 0;
    const auto look = [&](const char* function, const CallOutcome& outcome) {
      require_explained(function, outcome);
      if (outcome.ok() && host.failures() > failures && service != FailingHost::Service::kAllocate)
        throw CheckFailure(formatted("{} returned GANNET_OK, and gannet_host::{} had failed in it", function, name),
                           text_of(place()));
      failures = host.failures();
      return outcome.ok();
    };
    CallOutcome outcome;
    const PluginObject object(*subject.plugin, params.view(), host.table(), outcome);
    if (!look("create", outcome)) continue;
    const int64_t shape[] = {static_cast<int64_t>(kNumel)};
    gannet_tensor tensor{sizeof(gannet_tensor), 1, 0, 100, "large", kNumel, shape, kNumel, 1, 0, 0, tensor_seed("large")};
    gannet_optimizer_context context{};
    context.struct_size = sizeof(context);
    context.group_count = context.world_size = 1;
    context.tensors = &tensor;
    context.tensor_count = 1;
    context.tensor_stride = sizeof(tensor);
    gannet_optimizer_description description{};
    description.struct_size = sizeof(description);
    if (!look("describe", call("describe", *subject.plugin, api->describe, object.self(), &context, &description))) continue;
    const OptimizerTraits described = describe(subject, many_shapes(types));
    // Room for fp64 per element; states per tensor and per group need less.
    std::vector<Buffer> memory;
    for (size_t i = 0; i < described.states.size() + 3; ++i) memory.emplace_back(kNumel * sizeof(double), "an array");
    const auto aligned = [&](size_t i) { return memory[i].data(); };
    std::vector<void*> states, group_states;
    for (size_t s = 0; s < described.states.size(); ++s) {
      states.push_back(described.states[s].has_matrices() ? nullptr : aligned(s + 3));
      group_states.push_back(described.states[s].is_of_group() ? states.back() : nullptr);
    }
    std::vector<void*> squares(states.size());  // a vector has no matrices
    const uint64_t workspace_bytes = description.workspace_bytes + kNumel * description.workspace_bytes_per_element;
    const Buffer workspace = workspace_bytes > 0 ? Buffer(workspace_bytes, "the workspace") : Buffer();
    std::vector<double> sum_values(description.sum_count, 1.0);
    std::vector<std::vector<double>> lines(description.sum_count, std::vector<double>(kNumel, 1.0));
    std::vector<double*> line_places;
    for (auto& each : lines) line_places.push_back(each.data());
    gannet_step_args step{};
    step.struct_size = sizeof(step);
    step.step = 1;
    step.grad_scale = 1;
    step.hyper = described.hyper.data();
    step.hyper_count = described.hyper.size();
    step.tensors = &tensor;
    step.tensor_count = 1;
    step.tensor_stride = sizeof(tensor);
    step.states = group_states.data();
    step.state_count = group_states.size();
    step.sum_count = description.sum_count;
    step.seed = 1;
    step.workspace = description.workspace_bytes > 0 ? workspace.data() : nullptr;
    step.workspace_bytes = description.workspace_bytes;
    step.loss = described.uses_loss ? plausible_loss(1) : std::numeric_limits<double>::quiet_NaN();
    if (api->begin_step) {
      const Host::OpenMetrics metrics(host.host(), [](const std::string&, double) {});
      if (!look("begin_step", call("begin_step", *subject.plugin, api->begin_step, object.self(), &step))) continue;
    }
    gannet_segment segment{};
    segment.struct_size = sizeof(segment);
    segment.dimensions = 1;
    segment.tensor_id = 100;
    segment.numel = segment.tensor_numel = kNumel;
    segment.shape = shape;
    segment.name = tensor.name;
    segment.columns = kNumel;
    segment.matrix_rows = 1;
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = types.param;
    args.grad_dtype = types.grad;
    args.out_dtype = types.out;
    args.numel = kNumel;
    args.param = aligned(0);
    args.grad = aligned(1);
    args.out = types.out == GANNET_DTYPE_NONE ? nullptr : aligned(2);
    args.states = states.data();
    args.state_count = states.size();
    args.grad_scale = 1;
    args.step = 1;
    args.hyper = described.hyper.data();
    args.hyper_count = described.hyper.size();
    args.segments = &segment;
    args.segment_count = 1;
    args.segment_stride = sizeof(segment);
    args.sums = sum_values.empty() ? nullptr : sum_values.data();
    args.sum_count = sum_values.size();
    args.lines = line_places.data();
    args.seed = 1;
    args.workspace = workspace.data();
    args.workspace_bytes = workspace_bytes;
    args.squares = squares.data();
    const bool has_loss = described.uses_loss && !described.takes_device_numbers;
    args.loss = has_loss ? step.loss : std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> numbers = numbers_of(args);
    if (description.capabilities & GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS) give_numbers(args, numbers.data(), numbers.size());
    if (api->sums && description.sum_count > 0) {
      std::vector<double> parts(description.sum_count);
      if (!look("sums", call("sums", *subject.plugin, api->sums, object.self(), &args, uint32_t{0}, parts.data()))) continue;
    }
    if (!look("update", call("update", *subject.plugin, api->update, object.self(), &args))) continue;
    if (description.capabilities & GANNET_OPTIMIZER_TAKES_LISTS)
      look("update_many",
           call("update_many", *subject.plugin, api->update_many, object.self(), &args, uint64_t{1}, uint64_t{sizeof(args)}));
  }
}

void leave_nothing_in_steps(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const ProblemCut cut = uncut(problem, rules_of(subject, problem));
  const auto run = [&](int64_t steps) { train(subject, problem, cut, {.steps = steps}); };
  require_no_growth([&] { run(1); }, 300, "300 objects that have trained one step");
  require_no_growth([&] { run(100); }, 10, "10 runs of 100 steps");
  // Resources that one object accumulates until it is destroyed.
  constexpr int64_t kBegin = 200, kEnd = 600;
  HeldResources before{};
  train(subject, problem, cut, {.steps = kEnd, .observe = [&](int64_t step) {
                                  if (step == kBegin) before = held();
                                  if (step == kEnd)
                                    require_no_growth_since(before, kEnd - kBegin,
                                                            formatted("steps {} to {} of one object", kBegin, kEnd));
                                }});
}

}  // namespace

void fail_optimizer(Subject& subject) {
  if (!works_on_host(*subject.plugin)) return;
  supported_types(subject, /*is_strict=*/true);
  host_failures(subject);
}

std::vector<Check> optimizer_checks() {
  return {
      {"description",
       "describe says the same whenever it is asked, on every object with the same params, and when parameters join",
       "compute it from the params alone", 30, description},
      {"supports", "supports() answers for every combination of types; update takes those that it accepts",
       "accept only what update handles, and refuse the rest with a sentence", 60, support},
      {"gradients-untouched", "the gradient is never written", "use a scratch buffer of gannet_host::allocate", 30, gradients},
      {"inputs-untouched", "the structs of a call, its lists and its numbers are never written", "copy them", 60, inputs},
      {"bounds", "nothing outside of a buffer is read or written", "loop to args->numel, the last lanes one by one", 30, bounds},
      {"own-states-untouched", "states per tensor and per group are written in begin_step and end_step alone",
       "move the write to "
       "end_step",
       30, group_states},
      {"sums-write-nothing", "sums() writes its sums alone", "move other writes to update or end_step", 30, sums},
      {"no-kept-pointers", "no pointer of a call is used after it", "read them from args in every call", 30, kept_pointers},
      {"repeatable", "200 steps leave finite parameters, and a second run the same bits",
       "do not read uninitialised memory, time "
       "or addresses; keep no state in static variables",
       60, repeat},
      {"halves-equal-whole", "ELEMENTWISE is claimed: every element is the same in any range, bit for bit",
       "let nothing depend on "
       "an element's place in the range, or drop the claim",
       60, halves},
      {"any-cut",
       "parameters and states are the same however the group is cut into ranks, ranges and pages: bit for bit, within "
       "1e-6 of the 2-norm where sums are used",
       "take what spans a tensor from sums and segments, not from the range", 120, any_cut},
      {"ranks-agree", "every rank writes the same into states per tensor and per group", "compute them from sums and collectives",
       60, agree},
      {"reduction-plan", "reduces_gradients is a function of the params and the step", "compute it from those alone", 30,
       reduction_plan},
      {"own-reduction",
       "after steps whose gradients it averages itself all ranks have the same, which depends on every rank; after local steps "
       "the same weights to use",
       "average with the host's collectives", 180, optimizer_reduction},
      {"own-reduction-resumes", "with each rank's saved states a run whose gradients it averages continues bit for bit",
       "keep everything that an update needs in declared states", 60, optimizer_reduction_resumes},
      {"resumes", "a new object with the saved states continues bit for bit",
       "keep everything that an update needs in declared "
       "states",
       60, resume},
      {"lagging-steps", "a tensor that joined later is updated with its own number of updates",
       "use args->step, not a count of "
       "your own",
       60, lag},
      {"schedule", "each update uses the hyperparameters that it is given", "read args->hyper in every update", 60, schedule},
      {"groups", "a group is updated with its own hyperparameters, whatever those of the other groups are",
       "read args->hyper in every call; keep nothing in static variables", 60, groups},
      {"gradient-scale", "the gradient is grad * grad_scale: a power of two that moves from one to the other changes no bit",
       "multiply by args->grad_scale in every call, sums included, as a product in which nothing is rounded twice", 60,
       gradient_scale},
      {"hyperparameters", "every dynamic param is that of the call, not that of create or of an earlier step",
       "read args->hyper in every call; keep of `params` what is not dynamic", 90, hyperparameters},
      {"labels", "tensor ids, group numbers and addresses are labels: results do not depend on them",
       "take random numbers from args->seed and the segment's seed, and what differs between tensors from their shapes", 60,
       labels},
      {"neighbours", "without sums or states of the group, a tensor's results do not depend on which other tensors are in it",
       "find a tensor's numbers by tensor_index, first_row and first_column", 60, neighbours},
      {"types", "every combination of types that `supports` accepts is trained by the same rule, in any cut and after a resume",
       "read each array by its dtype of the call", 180, all_types},
      {"lengths", "pieces of every length from 1 to 131, and one of 2^20 + 3 elements, are as in any other cut",
       "mind the last lanes, and counters of 16 or 20 bits", 120, piece_lengths},
      {"far-steps", "steps around 2^24, 2^31, 2^32 and 2^40 give finite values, and move the parameters alike on both sides",
       "keep args->step in 64 bits, and compute powers of it in double", 60, far_steps},
      {"threads", "results do not depend on the number of the host's threads, nor on the order of a loop's chunks",
       "cut sums at places that are fixed by the tensor, not by thread_count()", 120, threads},
      {"random-numbers", "USES_SEED is claimed: another seed of the run gives other parameters",
       "draw from args->seed, or drop the claim", 60, random_numbers},
      {"copy-out", "`out` is the new parameter, rounded to nearest even", "round the value that you store into param", 60,
       copy_out},
      {"nonfinite-gradients", "NaN and infinite gradients end neither the process nor the loop", "do not index or loop by them",
       60, nonfinite},
      {"two-at-once", "two objects in two threads compute what each does alone", "keep no state outside of the object", 60,
       two_at_once},
      {"host-failures", "where a service of the host fails, the call fails with a sentence", "check what gannet_host returns", 30,
       host_failures},
      {"refused-memory", "where gannet_host::allocate gives null, a call fails with a sentence, or computes what it would have",
       "return GANNET_OUT_OF_MEMORY with a sentence where you cannot do without", 60, refused_memory},
      {"other-hosts",
       "structs and strides that are longer, as a later minor makes them, or shorter, as an older one does, change nothing",
       "go from one struct to the next by the stride; ask GANNET_HAS() for fields that are newer than 2.0", 120, other_hosts},
      {"partial-sums",
       "sums() combines this piece's share with what is in the array: it adds to it, or takes the larger or smaller",
       "write sums[i] += part, not sums[i] = part", 30, partial_sums},
      {"leaves-nothing-in-steps", "objects that have trained, and long runs, leave no memory behind",
       "free in destroy what "
       "update made, and make it once",
       120, leave_nothing_in_steps},
      {"evaluation-weights", "evaluate writes finite weights, the same in every cut, and nothing but `out`",
       "compute `out` from param, states and hyper alone", 60, evaluation},
      {"perturbation",
       "perturb writes where the gradient is to be taken, the same again, in every cut, and nothing but `out`: what the host "
       "puts "
       "back is what was there",
       "compute all of `out` from param, gradient, states, hyper and the sums of GANNET_PASS_PERTURB", 60, perturbation},
      {"second-gradient",
       "wants_second_gradient is a function of the params and the step, some of the first 1000 steps want one, and the update of "
       "such a step depends on it",
       "compute the answer from the step alone; read args->second_grad, or drop the claim", 60, second_gradient},
      {"lists", "update_many and sums_many give the bits of single calls, whatever the length and the order of their lists",
       "take every number, array and part of the workspace from the piece's own args; keep nothing from one piece for the next",
       60, lists},
      {"device-numbers",
       "the numbers of a step are those of device_numbers: not the call's, which are NaN and null, nor begin_step's; a skip of 1 "
       "changes nothing",
       "read them in update from args->device_numbers alone (sdk: StepNumbers), the skip first", 60, device_numbers},
      {"loss",
       "USES_LOSS is claimed: results depend on the loss of every step; where it is NaN, which a step's loss may be, the "
       "parameters stay finite, or the call fails with a sentence",
       "read args->loss in every call, and ask whether it is a number; or drop the claim", 60, losses},
      {"total-steps",
       "with every planned length of the run, without one, and beyond its end, the parameters are finite; a length counts for "
       "the call that has it",
       "read args->total_steps (0: unknown) in every call, and clamp what decays beyond it", 60, run_lengths},
      {"metrics",
       "gannet_host::metric is called in begin_step and end_step alone, with a legal name and a finite value, the same in a "
       "second run",
       "move the call to end_step; name it with letters, digits, '_', '-', '.', '/'", 60, shown_metrics},
      {"reference", "200 steps are those of the reference, within the tolerance", "compare the rules where they differ", 60,
       against_reference}};
}

}  // namespace gannet::kit

// For each field of an optimizer's calls: rules that ignore it, read it once, read it wrongly, or write it. The table of
// kit_test.py has the check that names each.
#include "full.h"

namespace {

using namespace bad;

struct Complete : Full {  // sound
  using Full::Full;
};
// Sound too, without sums of the group and states of all tensors: results of a tensor do not depend on its neighbours.
struct Separate : Full {
  using Full::Full;
  std::vector<gannet_sum_spec> wanted_sums() const {
    return {sum(GANNET_SUM_OF_TENSOR), sum(GANNET_SUM_OF_ROW), sum(GANNET_SUM_OF_COLUMN)};
  }
  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), state("norms", GANNET_STATE_PER_TENSOR, GANNET_FLOAT64),
            state("first", GANNET_STATE_PER_TENSOR, GANNET_FLOAT64), state("rows", GANNET_STATE_PER_ROW, GANNET_FLOAT64),
            state("columns", GANNET_STATE_PER_COLUMN, GANNET_FLOAT64)};
  }
  void begin_step(const gannet_step_args&) {}
  void end_step(const gannet_step_args& given) {
    // Full reads kLargest of each row, which is not wanted here, and writes one number of the third state.
    gannet_step_args a = given;
    std::vector<double> rows;
    for (uint64_t t = 0; t < a.tensor_count; ++t)
      for (uint64_t s = 0; s < kCount; ++s) rows.push_back(s < a.sum_count ? a.sums[t * a.sum_count + s] : 0);
    a.sums = rows.data();
    a.sum_count = kCount;
    double nothing = 0;
    std::vector<void*> states(a.states, a.states + a.state_count);
    states[kTotal] = &nothing;
    a.states = states.data();
    Full::end_step(a);
  }
  void update(const gannet_update_args& given) {
    gannet_update_args a = given;
    std::vector<double> rows;
    for (uint64_t t = 0; t < a.segment_count; ++t)
      for (uint64_t s = 0; s < kCount; ++s) rows.push_back(s < a.sum_count ? a.sums[t * a.sum_count + s] : 0);
    a.sums = rows.data();
    a.sum_count = kCount;
    double nothing = 0;
    std::vector<void*> states(a.states, a.states + a.state_count);
    states[kTotal] = &nothing;
    a.states = states.data();
    Full::update(a);
  }
};

#define UPDATE(name, ...)                          \
  struct name : Full {                             \
    using Full::Full;                              \
    void update(const gannet_update_args& given) { \
      gannet_update_args a = given;                \
      __VA_ARGS__;                                 \
      Full::update(a);                             \
    }                                              \
  };
#define SUMS(name, ...)                                                        \
  struct name : Full {                                                         \
    using Full::Full;                                                          \
    void sums(const gannet_update_args& given, uint32_t round, double* sums) { \
      gannet_update_args a = given;                                            \
      __VA_ARGS__;                                                             \
      Full::sums(a, round, sums);                                              \
    }                                                                          \
  };
#define STEP(name, base, function, ...)            \
  struct name : base {                             \
    using base::base;                              \
    void function(const gannet_step_args& given) { \
      gannet_step_args a = given;                  \
      __VA_ARGS__;                                 \
      base::function(a);                           \
    }                                              \
  };
// Of segments, in sums and update alike.
#define SEGMENTS(name, base, ...)                                              \
  struct name : base {                                                         \
    using base::base;                                                          \
    void change(gannet_update_args& a, std::vector<gannet_segment>& parts) {   \
      (void)a;                                                                 \
      for (uint64_t s = 0; s < parts.size(); ++s) {                            \
        gannet_segment& part = parts[s];                                       \
        __VA_ARGS__;                                                           \
      }                                                                        \
    }                                                                          \
    void sums(const gannet_update_args& given, uint32_t round, double* sums) { \
      gannet_update_args a = given;                                            \
      OwnSegments own(a);                                                      \
      change(a, own.all);                                                      \
      base::sums(a, round, sums);                                              \
    }                                                                          \
    void update(const gannet_update_args& given) {                             \
      gannet_update_args a = given;                                            \
      OwnSegments own(a);                                                      \
      change(a, own.all);                                                      \
      base::update(a);                                                         \
    }                                                                          \
  };

// ---- gannet_update_args
UPDATE(UpdateSizeExact, if (a.struct_size != sizeof(a)) throw Failure(GANNET_INVALID_ARGUMENT, "another size"))
UPDATE(UpdateParamTypeIgnored, a.param_dtype = GANNET_FLOAT32)
UPDATE(UpdateParamTypeWritten, writable(given.param_dtype) = GANNET_FLOAT32)
UPDATE(UpdateGradTypeIgnored, a.grad_dtype = a.param_dtype)
UPDATE(UpdateOutTypeIgnored, if (a.out) a.out_dtype = GANNET_BFLOAT16)
UPDATE(UpdateNumelWritten, writable(given.numel) = a.numel)
UPDATE(UpdateParamOnce, a.param = first("param", a.param))
UPDATE(UpdateGradOnce, a.grad = first("grad", a.grad))
UPDATE(UpdateGradWritten, if (a.numel > 0) static_cast<char*>(const_cast<void*>(a.grad))[0] = 0)
UPDATE(UpdateOutIgnored, a.out_dtype = GANNET_DTYPE_NONE)
UPDATE(UpdateOutOnce, if (a.out) a.out = first("out", a.out))
UPDATE(UpdateStatesOnce, a.states = first("states", a.states))
UPDATE(UpdateStatesWritten, writable(given.states[kMomentum]) = a.states[kMomentum])
UPDATE(UpdateScaleIgnored, a.grad_scale = 1)
UPDATE(UpdateScaleOnce, a.grad_scale = first("scale", a.grad_scale))
UPDATE(UpdateScaleSquared, a.grad_scale *= 2 * a.grad_scale)
UPDATE(UpdateScaleWritten, writable(given.grad_scale) = a.grad_scale)
UPDATE(UpdateStepOnce, a.step = first("step", a.step))
UPDATE(UpdateStepWritten, writable(given.step) = a.step)
UPDATE(UpdateHyperOnce, const double lr = first("lr", a.hyper[0]); const double all[] = {lr, a.hyper[1]}; a.hyper = all)
UPDATE(UpdateHyperKept, a.hyper = first("hyper", a.hyper))
UPDATE(UpdateHyperBeyond, const double all[] = {a.hyper[0], a.hyper[a.hyper_count]}; a.hyper = all)
UPDATE(UpdateHyperWritten, writable(given.hyper[0]) = a.hyper[0])
UPDATE(UpdateHyperCountWritten, writable(given.hyper_count) = a.hyper_count)
UPDATE(UpdateSegmentsOnce, a.segments = first("segments", a.segments))
UPDATE(UpdateSegmentsWritten, writable(given.segments[0].numel) = given.segments[0].numel)
UPDATE(UpdateSegmentCountShort, if (a.segment_count > 1)-- a.segment_count)
UPDATE(UpdateStrideIgnored, a.segment_stride = sizeof(gannet_segment))
UPDATE(UpdateSumsOnce, a.sums = first("sums", a.sums))
UPDATE(UpdateSumsFirstRow, std::vector<double> rows(a.segment_count* a.sum_count);
       for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = a.sums[i % a.sum_count]; a.sums = rows.data())
UPDATE(UpdateSumsWritten, writable(given.sums[0]) = a.sums[0])
UPDATE(UpdateGroupUsed, a.grad_scale *= 1 + 0.25 * a.group)
UPDATE(UpdateLinesOnce, a.lines = first("lines", a.lines))
UPDATE(UpdateLinesWritten, writable(given.lines[kOfRows]) = a.lines[kOfRows])
UPDATE(UpdateSeedOnce, a.seed = first("seed", a.seed))
UPDATE(UpdateWorkspaceOnce, a.workspace = first("workspace", a.workspace))
UPDATE(UpdateWorkspaceBeyond, static_cast<volatile char*>(a.workspace)[a.workspace_bytes] = 1)
UPDATE(UpdateWorkspaceRead, a.grad_scale *= 1 + 1e-3 * static_cast<unsigned char*>(a.workspace)[0])
SUMS(SumsScaleIgnored, a.grad_scale = 1)
SUMS(SumsRoundIgnored, round = 0)
SUMS(SumsLinesSet, if (round == 0) for (uint64_t s = 0; s < a.segment_count; ++s)
                       a.lines[kOfRows][row_of(segment(a, s), segment(a, s).offset)] = 0)
SUMS(SumsStrideIgnored, a.segment_stride = sizeof(gannet_segment))
SUMS(SumsParamWritten, if (a.numel > 0) static_cast<volatile char*>(a.param)[0] = static_cast<char*>(a.param)[0])
SUMS(SumsGroupUsed, a.grad_scale *= 1 + 0.25 * a.group)

struct UpdateSeedIgnored : Separate {
  using Separate::Separate;
  void update(const gannet_update_args& given) {
    gannet_update_args a = given;
    a.seed = 4;
    Separate::update(a);
  }
};

// ---- gannet_step_args
STEP(BeginSizeExact, Full, begin_step, if (a.struct_size != sizeof(a)) throw Failure(GANNET_INVALID_ARGUMENT, "another size"))
STEP(BeginStepOnce, Full, begin_step, a.step = first("begin", a.step))
STEP(BeginStepWritten, Full, begin_step, writable(given.step) = a.step)
STEP(BeginHyperOnce, Full, begin_step, const double all[] = {a.hyper[0], first("damping", a.hyper[1])}; a.hyper = all)
STEP(BeginHyperWritten, Full, begin_step, writable(given.hyper[1]) = a.hyper[1])
STEP(BeginGroupUsed, Full, begin_step, a.step += a.group)
STEP(BeginSeedOnce, Full, begin_step, a.seed = first("begin_seed", a.seed))
STEP(BeginStatesOnce, Full, begin_step, a.states = first("begin_states", a.states))
STEP(BeginStatesWritten, Full, begin_step, writable(given.states[kTotal]) = a.states[kTotal])
STEP(BeginWorkspaceBeyond, Full, begin_step, static_cast<volatile char*>(a.workspace)[a.workspace_bytes] = 1)
STEP(EndTensorsOnce, Full, end_step, a.tensors = first("tensors", a.tensors))
STEP(EndTensorCountShort, Separate, end_step, if (a.tensor_count > 1)-- a.tensor_count)
STEP(EndTensorStrideIgnored, Full, end_step, a.tensor_stride = sizeof(gannet_tensor))
STEP(EndSumsOnce, Full, end_step, a.sums = first("end_sums", a.sums))
STEP(EndSumsWritten, Full, end_step, writable(given.sums[0]) = a.sums[0])
STEP(EndSumsFirstRow, Separate, end_step, std::vector<double> rows(a.tensor_count* a.sum_count);
     for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = a.sums[i % a.sum_count]; a.sums = rows.data())
STEP(EndHyperOnce, Full, end_step, const double all[] = {first("end_lr", a.hyper[0]), a.hyper[1]}; a.hyper = all)
STEP(EndScaleUsed, Full, end_step, const double all[] = {a.hyper[0] * a.grad_scale, a.hyper[1]}; a.hyper = all)
STEP(EndScaleOnce, Full, end_step, const double all[] = {a.hyper[0] * first("end_scale", a.grad_scale), a.hyper[1]};
     a.hyper = all)
STEP(EndLinesOnce, Full, end_step, a.lines = first("end_lines", a.lines))

// ---- gannet_segment and gannet_tensor
SEGMENTS(SegmentIndexInPiece, Full, part.tensor_index = s)
SEGMENTS(SegmentIdUsed, Full, part.first_row += 0; part.seed += part.tensor_id)
SEGMENTS(SegmentOffsetIgnored, Full, part.offset = 0)
SEGMENTS(SegmentOffsetInTensorIgnored, Full, part.tensor_offset = 0)
SEGMENTS(SegmentNumelShort, Full, if (part.numel > 4) part.numel -= 1)
SEGMENTS(SegmentTensorNumelOfPart, Full, part.tensor_numel = part.numel)
SEGMENTS(SegmentNameOnce, Full, const char* const name = first("name", part.name);
         part.seed += static_cast<unsigned char>(name[0]))
SEGMENTS(SegmentShapeOnce, Full, if (part.dimensions > 0) part.seed += static_cast<uint64_t>(*first("shape", part.shape)))
SEGMENTS(SegmentShapeBeyond, Full, part.seed += static_cast<uint64_t>(part.shape[part.dimensions]))
SEGMENTS(SegmentColumnsOfPart, Full, if (part.numel < part.columns) part.columns = part.numel)
SEGMENTS(SegmentFirstRowIgnored, Separate, part.first_row = 0)
SEGMENTS(SegmentFirstColumnIgnored, Separate, part.first_column = 0)
SEGMENTS(SegmentMatrixRowsIgnored, Separate, part.matrix_rows = 1; part.first_column = part.first_column % 3)
SEGMENTS(SegmentSeedIgnored, Full, part.seed = 1)
SEGMENTS(SegmentSeedByIndex, Separate, part.seed = part.tensor_index)
STEP(TensorIndexReversed, Separate, end_step, OwnTensors own(a);
     for (auto& each : own.all) each.index = a.tensor_count - 1 - each.index)
STEP(TensorFirstRowIgnored, Separate, end_step, OwnTensors own(a); for (auto& each : own.all) each.first_row = 0)
STEP(TensorFirstColumnIgnored, Separate, end_step, OwnTensors own(a); for (auto& each : own.all) each.first_column = 0)
STEP(TensorIdUsed, Full, end_step, for (uint64_t t = 0; t < a.tensor_count; ++t) a.step += tensor(a, t).id;
     const double all[] = {a.hyper[0] * static_cast<double>(a.step % 5), a.hyper[1]}; a.hyper = all)

// Written against the table itself, without the SDK's care for structs of other minors.
using gannet::sdk::detail::kOptimizerApi;
constexpr gannet_optimizer_api kReadsNewer = [] {
  gannet_optimizer_api api = kOptimizerApi<Complete>;
  api.update = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
    gannet_update_args copy = *args;  // also what a shorter struct has not
    return kOptimizerApi<Complete>.update(self, &copy, error);
  };
  return api;
}();
constexpr gannet_optimizer_api kLongSentence = [] {
  gannet_optimizer_api api = kOptimizerApi<Momentum>;
  api.supports = [](void* self, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) -> int32_t {
    if (kOptimizerApi<Momentum>.supports(self, param, grad, out, error) == GANNET_OK) return GANNET_OK;
    std::strcpy(error->message, "it takes fp32 alone, whatever room there is for this sentence");
    return GANNET_UNSUPPORTED;
  };
  return api;
}();
constexpr gannet_optimizer_api kWritesNewer = [] {
  gannet_optimizer_api api = kOptimizerApi<Momentum>;
  api.describe = [](void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                    gannet_error* error) -> int32_t {
    description->workspace_bytes_per_element = 0;
    return kOptimizerApi<Momentum>.describe(self, context, description, error);
  };
  return api;
}();
constexpr gannet_descriptor with_table(const char* name, const gannet_param_spec* params, uint64_t count,
                                       const gannet_optimizer_api* api) {
  return gannet::sdk::describe(GANNET_KIND_OPTIMIZER, GANNET_TIER_STABLE, name, "", "1.0", "", "breaks one thing", params, count,
                               api);
}

// clang-format off
#define ALL_FIELDS(X)                                                                                   \
  X(UpdateSizeExact, "updatesizeexact") X(UpdateParamTypeIgnored, "updateparamtypeignored")             \
  X(UpdateParamTypeWritten, "updateparamtypewritten") X(UpdateGradTypeIgnored, "updategradtypeignored") \
  X(UpdateOutTypeIgnored, "updateouttypeignored") X(UpdateNumelWritten, "updatenumelwritten")           \
  X(UpdateParamOnce, "updateparamonce") X(UpdateGradOnce, "updategradonce")                             \
  X(UpdateGradWritten, "updategradwritten") X(UpdateOutIgnored, "updateoutignored")                     \
  X(UpdateOutOnce, "updateoutonce") X(UpdateStatesOnce, "updatestatesonce")                             \
  X(UpdateStatesWritten, "updatestateswritten") X(UpdateScaleIgnored, "updatescaleignored")             \
  X(UpdateScaleOnce, "updatescaleonce") X(UpdateScaleSquared, "updatescalesquared")                     \
  X(UpdateScaleWritten, "updatescalewritten") X(UpdateStepOnce, "updatesteponce")                       \
  X(UpdateStepWritten, "updatestepwritten") X(UpdateHyperOnce, "updatehyperonce")                       \
  X(UpdateHyperKept, "updatehyperkept") X(UpdateHyperBeyond, "updatehyperbeyond")                       \
  X(UpdateHyperWritten, "updatehyperwritten") X(UpdateHyperCountWritten, "updatehypercountwritten")     \
  X(UpdateSegmentsOnce, "updatesegmentsonce") X(UpdateSegmentsWritten, "updatesegmentswritten")         \
  X(UpdateSegmentCountShort, "updatesegmentcountshort") X(UpdateStrideIgnored, "updatestrideignored")   \
  X(UpdateSumsOnce, "updatesumsonce") X(UpdateSumsFirstRow, "updatesumsfirstrow")                       \
  X(UpdateSumsWritten, "updatesumswritten") X(UpdateGroupUsed, "updategroupused")                       \
  X(UpdateLinesOnce, "updatelinesonce") X(UpdateLinesWritten, "updatelineswritten")                     \
  X(UpdateSeedIgnored, "updateseedignored") X(UpdateSeedOnce, "updateseedonce")                         \
  X(UpdateWorkspaceOnce, "updateworkspaceonce") X(UpdateWorkspaceBeyond, "updateworkspacebeyond")       \
  X(UpdateWorkspaceRead, "updateworkspaceread") X(SumsScaleIgnored, "sumsscaleignored")                 \
  X(SumsRoundIgnored, "sumsroundignored") X(SumsLinesSet, "sumslinesset")                               \
  X(SumsStrideIgnored, "sumsstrideignored") X(SumsParamWritten, "sumsparamwritten")                     \
  X(SumsGroupUsed, "sumsgroupused") X(BeginSizeExact, "beginsizeexact")                                 \
  X(BeginStepOnce, "beginsteponce") X(BeginStepWritten, "beginstepwritten")                             \
  X(BeginHyperOnce, "beginhyperonce") X(BeginHyperWritten, "beginhyperwritten")                         \
  X(BeginGroupUsed, "begingroupused") X(BeginSeedOnce, "beginseedonce")                                 \
  X(BeginStatesOnce, "beginstatesonce") X(BeginStatesWritten, "beginstateswritten")                     \
  X(BeginWorkspaceBeyond, "beginworkspacebeyond") X(EndTensorsOnce, "endtensorsonce")                   \
  X(EndTensorCountShort, "endtensorcountshort") X(EndTensorStrideIgnored, "endtensorstrideignored")     \
  X(EndSumsOnce, "endsumsonce") X(EndSumsWritten, "endsumswritten")                                     \
  X(EndSumsFirstRow, "endsumsfirstrow") X(EndHyperOnce, "endhyperonce") X(EndLinesOnce, "endlinesonce") \
  X(EndScaleUsed, "endscaleused") X(EndScaleOnce, "endscaleonce")                                        \
  X(SegmentIndexInPiece, "segmentindexinpiece") X(SegmentIdUsed, "segmentidused")                       \
  X(SegmentOffsetIgnored, "segmentoffsetignored")                                                       \
  X(SegmentOffsetInTensorIgnored, "segmentoffsetintensorignored")                                       \
  X(SegmentNumelShort, "segmentnumelshort") X(SegmentTensorNumelOfPart, "segmenttensornumelofpart")     \
  X(SegmentNameOnce, "segmentnameonce") X(SegmentShapeOnce, "segmentshapeonce")                         \
  X(SegmentShapeBeyond, "segmentshapebeyond") X(SegmentColumnsOfPart, "segmentcolumnsofpart")           \
  X(SegmentFirstRowIgnored, "segmentfirstrowignored")                                                   \
  X(SegmentFirstColumnIgnored, "segmentfirstcolumnignored")                                             \
  X(SegmentMatrixRowsIgnored, "segmentmatrixrowsignored") X(SegmentSeedIgnored, "segmentseedignored")   \
  X(SegmentSeedByIndex, "segmentseedbyindex") X(TensorIndexReversed, "tensorindexreversed")             \
  X(TensorFirstRowIgnored, "tensorfirstrowignored")                                                     \
  X(TensorFirstColumnIgnored, "tensorfirstcolumnignored") X(TensorIdUsed, "tensoridused")
// clang-format on

#define PROVIDED(type, name) " optimizer/" name
#define RULE(type, name) , optimizer<type>(#type, "", "1.0", "misreads one field")

}  // namespace

GANNET_PLUGINS(
    "optimizer/complete optimizer/separate optimizer/readsnewer optimizer/writesnewer optimizer/longsentence" ALL_FIELDS(
        PROVIDED),
    GANNET_TIER_STABLE, optimizer<Complete>("Complete", "", "1.0", "reads every field"),
    optimizer<Separate>("Separate", "", "1.0", "reads every field of a tensor"),
    with_table("ReadsNewer", Complete::kParams, 2, &kReadsNewer), with_table("WritesNewer", Momentum::kParams, 1, &kWritesNewer),
    with_table("LongSentence", Momentum::kParams, 1, &kLongSentence) ALL_FIELDS(RULE))

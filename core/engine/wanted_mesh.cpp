// Determines the mesh of an engine from its config (gannet.mesh), DeepSpeed's pipeline.stages, and
// the program (a MeshShape or an mpu). Sources that request the same axis must request the same
// degree.
#include <gannet/mpu.h>

#include <sstream>

#include "base/format.h"
#include "config/document.h"
#include "control/world.h"
#include "engine/open.h"
#include "mesh/request.h"

namespace gannet {
namespace {

// Writes an mpu's answers as text, for the other ranks.
std::string to_text(const MpuAnswers& answers) {
  std::ostringstream text;
  for (const auto& [rank, size, group] : {std::tuple(answers.model_rank, answers.model_size, answers.model_group),
                                          std::tuple(answers.data_rank, answers.data_size, answers.data_group)}) {
    text << rank << ' ' << size << ' ' << group.size() << ' ';
    for (const uint32_t member : group) text << member << ' ';
  }
  return text.str();
}

MpuAnswers from_text(const std::string& text) {
  std::istringstream numbers(text);
  MpuAnswers answers;
  const auto read = [&](uint32_t& rank, uint32_t& size, std::vector<uint32_t>& group) {
    size_t members = 0;
    numbers >> rank >> size >> members;
    for (group.resize(members); uint32_t& member : group) numbers >> member;
  };
  read(answers.model_rank, answers.model_size, answers.model_group);
  read(answers.data_rank, answers.data_size, answers.data_group);
  return answers;
}

MeshShape mesh_of(const Mpu& mpu, HostGroup& world) {
  std::vector<MpuAnswers> by_rank;
  for (const std::string& text : world.gather_texts(to_text(answers_of(mpu)))) by_rank.push_back(from_text(text));
  return gannet::mesh_of(by_rank);
}

}  // namespace

MeshShape wanted_mesh(const RankContext& context, const config::Document& document, const EngineOptions& options) {
  const auto& degrees_in_config = context.settings().mesh;
  std::vector<RequestedDegree> in_config, elsewhere;
  const auto add = [&](std::vector<RequestedDegree>& degrees, const char* axis, std::optional<int64_t> size,
                       const std::string& path) {
    if (size) degrees.push_back({axis, *size, formatted("{} ({})", document.origin_of(path).to_string(), config::dotted(path))});
  };
  add(in_config, kPipeAxis, degrees_in_config.pipe, "/gannet/mesh/pipe");
  add(in_config, kDataAxis, degrees_in_config.data, "/gannet/mesh/data");
  add(in_config, kTensorAxis, degrees_in_config.tensor, "/gannet/mesh/tensor");
  add(in_config, kExpertAxis, degrees_in_config.expert, "/gannet/mesh/expert");
  add(elsewhere, kPipeAxis, context.settings().pipeline_stages, "/pipeline/stages");
  if (options.pipe_stages) elsewhere.push_back({kPipeAxis, *options.pipe_stages, "pipe::Module's num_stages"});

  if (options.mesh && options.mpu)
    throw Error(ErrorCode::kArgument, "initialize was given a mesh and an mpu",
                "give it one of them: both say how ranks are laid out");
  HostGroup& world = context.process_group->links().host;
  std::optional<MeshShape> given = options.mesh;
  if (options.mpu) given = mesh_of(*options.mpu, world);
  if (given && given->world_size() != world.size())
    throw Error(ErrorCode::kConfig,
                formatted("the program's mesh, {}, has {} ranks, and this engine has {}", given->text(), given->world_size(),
                          world.size()),
                "start as many ranks, or change the mesh");
  const char* const who = options.mpu ? "the program's mpu" : "the program's mesh";
  if (given) {
    const bool is_refined = given->has(kExpertAxis) || given->has(kExpertDataAxis);
    if (is_refined && (given->has(kDataAxis) || !given->has(kExpertAxis) || !given->has(kExpertDataAxis)))
      throw Error(ErrorCode::kArgument,
                  formatted("the program's mesh, {}, has an axis of experts, but not expert and expert_data in place of data",
                            given->text()),
                  "refine() cuts data into both: mesh.refine(\"data\", {{\"expert_data\", 2}, {\"expert\", 2}})");
    if (is_refined) elsewhere.push_back({kDataAxis, int64_t{given->size(kExpertAxis)} * given->size(kExpertDataAxis), who});
    for (const MeshAxis& axis : given->axes()) {
      if (axis.name == kExpertDataAxis) continue;
      if (axis.name != kPipeAxis && axis.name != kDataAxis && axis.name != kTensorAxis && axis.name != kExpertAxis)
        throw Error(
            ErrorCode::kUnsupported,
            formatted(
                "the program's mesh, {}, has an axis '{}': an engine averages along data, and knows pipe, tensor and expert",
                given->text(), axis.name),
            "name the axis of ranks with data of their own data; combine() makes one axis of several");
      elsewhere.push_back({axis.name, axis.size, who});
    }
  }
  const MeshShape wanted = requested_mesh(in_config, elsewhere, world.size());
  MeshShape mesh = given ? *given : wanted;
  if (given && !given->has(kExpertAxis)) mesh = refined_by_experts(*given, wanted.size(kExpertAxis), who);
  if (mesh.size(kExpertAxis) == 1) mesh = unrefined(mesh);  // the same mesh always has the same form
  // Ranks with different meshes would wait for each other in groups that the others never create.
  if (world.size() > 1) control::agree(world, "the mesh", mesh.text());
  return mesh;
}

}  // namespace gannet

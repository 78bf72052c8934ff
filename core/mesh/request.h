// Builds the mesh that a config, DeepSpeed's pipeline.stages and the program request, and checks it
// against the number of ranks.
//
//   MeshShape mesh = requested_mesh({{"pipe", 2, "gannet.mesh.pipe"}, {"tensor", 1, "gannet.mesh.tensor"}},
//                                   {{"pipe", 2, "pipeline.stages"}}, 8);
//   // pipe 2 x data 4 x tensor 1: data gets the remaining factor; the axes are in DeepSpeed's order
#pragma once

#include <gannet/mesh.h>

#include <string>
#include <vector>

namespace gannet {

struct RequestedDegree {
  std::string axis;  // pipe, data, tensor, expert; "model" is DeepSpeed's name for tensor
  int64_t size = 1;
  std::string where;  // for messages: "ds_config.json:12:5 (gannet.mesh.pipe)", "PipelineModule's num_stages"
};

// `mesh` is the config's section, which names each axis at most once. `elsewhere` holds requests
// from other places (pipeline.stages, the program), which must agree with it. An axis without a
// request has degree 1, except data, which gets the remaining factor. Throws Error(kConfig), with
// the place or places, if an axis is unknown or named twice, if degrees conflict, are below 1 or do
// not multiply to the world size, or if the expert degree does not divide the data degree. If the
// expert degree is above 1, the mesh has the axes expert_data and expert instead of data.
MeshShape requested_mesh(const std::vector<RequestedDegree>& mesh, const std::vector<RequestedDegree>& elsewhere,
                         uint32_t world_size);

// Splits the axis data into expert_data and expert; with 1 rank along expert the mesh is unchanged.
// Throws like requested_mesh.
MeshShape refined_by_experts(const MeshShape& mesh, int64_t experts, const std::string& where);
// The inverse of refined_by_experts: merges expert and expert_data back into the axis data.
MeshShape unrefined(const MeshShape& shape);

}  // namespace gannet

// The mesh of a config against the ranks that there are.
#include "mesh/request.h"

#include <gmock/gmock.h>

#include "base/support.h"

namespace gannet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Degrees = std::vector<RequestedDegree>;

TEST(RequestedMesh, data_is_what_the_other_axes_leave) {
  EXPECT_EQ(requested_mesh({}, {}, 4).text(), "pipe 1 x data 4 x tensor 1");
  for (int64_t pipe : {1, 2, 3})
    for (int64_t tensor : {1, 2, 5})
      for (int64_t data : {1, 4}) {
        const MeshShape expected({{"pipe", static_cast<uint32_t>(pipe)},
                                  {"data", static_cast<uint32_t>(data)},
                                  {"tensor", static_cast<uint32_t>(tensor)}});
        const auto world = static_cast<uint32_t>(pipe * tensor * data);
        Degrees mesh = {{"tensor", tensor, "t"}, {"pipe", pipe, "p"}};
        EXPECT_EQ(requested_mesh(mesh, {}, world), expected);
        EXPECT_EQ(requested_mesh(mesh, {{"pipe", pipe, "pipeline.stages"}}, world), expected);
        mesh.push_back({"data", data, "d"});
        EXPECT_EQ(requested_mesh(mesh, {}, world), expected);
      }
  EXPECT_EQ(requested_mesh({{"model", 2, "m"}}, {}, 4).text(), "pipe 1 x data 2 x tensor 2");
  EXPECT_EQ(requested_mesh({}, {{"pipe", 2, "pipeline.stages"}}, 4).text(), "pipe 2 x data 2 x tensor 1");
}

TEST(RequestedMesh, experts_refine_data) {
  EXPECT_EQ(requested_mesh({{"expert", 1, "e"}}, {}, 4).text(), "pipe 1 x data 4 x tensor 1");
  const MeshShape mesh = requested_mesh({{"expert", 2, "e"}, {"tensor", 2, "t"}}, {{"expert", 2, "the program"}}, 8);
  EXPECT_EQ(mesh.text(), "pipe 1 x expert_data 2 x expert 2 x tensor 2");
  EXPECT_EQ(mesh.group("expert", 1), (std::vector<uint32_t>{1, 3}));       // neighbours along data
  EXPECT_EQ(mesh.group("expert_data", 1), (std::vector<uint32_t>{1, 5}));  // DeepSpeed's expert-data ranks, strided
  EXPECT_EQ(mesh.combine({"expert_data", "expert"}, "data"), requested_mesh({{"tensor", 2, "t"}}, {}, 8));
  const auto refused = [](const Degrees& degrees, const Degrees& elsewhere) {
    return error_of(ErrorCode::kConfig, [&] { requested_mesh(degrees, elsewhere, 4); });
  };
  EXPECT_THAT(refused({{"expert", 3, "gannet.mesh.expert"}}, {}),
              AllOf(HasSubstr("gannet.mesh.expert"), HasSubstr("3 ranks along the axis 'expert' do not divide the 4"),
                    HasSubstr("give a divisor")));
  EXPECT_THAT(refused({{"expert", 8, "e"}}, {}), HasSubstr("do not divide the 4"));
  EXPECT_THAT(refused({{"expert", 0, "e"}}, {}), HasSubstr("cannot have 0 ranks"));
  EXPECT_THAT(refused({{"expert", 2, "e"}}, {{"expert", 4, "the program"}}), HasSubstr("the program for 4"));
  EXPECT_THAT(refused({{"expert", 2, "e"}, {"expert", 2, "f"}}, {}), HasSubstr("has a degree already, at e"));
}

TEST(RequestedMesh, what_cannot_be_is_refused_with_its_places) {
  const auto refused = [](const Degrees& mesh, const Degrees& elsewhere, uint32_t world) {
    return error_of(ErrorCode::kConfig, [&] { requested_mesh(mesh, elsewhere, world); });
  };
  EXPECT_THAT(
      refused({{"pipe", 3, "gannet.mesh.pipe"}}, {}, 4),
      HasSubstr("gannet.mesh.pipe: a mesh of pipe 3 does not multiply to the 4 ranks of this run, whatever the size of the "
                "axis data"));
  EXPECT_THAT(refused({{"pipe", 2, "c.json:3:5"}, {"data", 3, "c.json:4:5"}}, {}, 4),
              AllOf(HasSubstr("c.json:3:5, c.json:4:5: a mesh of pipe 2 x data 3 does not multiply to the 4 ranks of this run"),
                    HasSubstr("without a degree for data")));
  EXPECT_THAT(refused({{"pipe", 2, "p"}, {"data", 1, "d"}}, {}, 4),
              HasSubstr("pipe 2 x data 1 does not multiply to the 4 ranks"));
  EXPECT_THAT(refused({{"tensor", 2, "t"}}, {}, 1), HasSubstr("does not multiply to the 1 rank of"));
  EXPECT_THAT(refused({{"pipe", int64_t{1} << 62, "p"}, {"tensor", 4, "t"}}, {}, 4),
              HasSubstr("does not multiply to the 4 ranks"));
  EXPECT_THAT(refused({{"pipe", 2, "p"}, {"pipe", 2, "q"}}, {}, 4), HasSubstr("q: the axis 'pipe' has a degree already, at p"));
  EXPECT_THAT(refused({{"tensor", 2, "gannet.mesh.tensor"}, {"model", 2, "gannet.mesh.model"}}, {}, 4),
              HasSubstr("gannet.mesh.model: the axis 'model' has a degree already, at gannet.mesh.tensor"));
  EXPECT_THAT(refused({{"pipes", 2, "p"}}, {}, 4),
              AllOf(HasSubstr("p: a mesh has no axis 'pipes'; did you mean 'pipe'?"), HasSubstr("pipe, data, tensor")));
  EXPECT_THAT(refused({{"pipe", 0, "p"}}, {}, 4), HasSubstr("p: the axis 'pipe' cannot have 0 ranks"));
  EXPECT_THAT(refused({{"pipe", 2, "gannet.mesh.pipe"}}, {{"pipe", 4, "pipeline.stages"}}, 4),
              HasSubstr("gannet.mesh.pipe asks for 2 ranks along the axis 'pipe', pipeline.stages for 4"));
  EXPECT_THAT(refused({}, {{"pipe", 2, "pipeline.stages"}, {"pipe", 4, "the program's num_stages"}}, 4),
              HasSubstr("pipeline.stages asks for 2 ranks along the axis 'pipe', the program's num_stages for 4"));
}

}  // namespace
}  // namespace gannet

// Checkpoints of meshes: tensors that an axis splits into boxes, sharded again by ZeRO, loaded by
// any other mesh.
#include <gannet/safetensors.h>
#include <gmock/gmock.h>

#include "base/format.h"
#include "checkpoint/export.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_text.h"
#include "checkpoint/support.h"

namespace gannet::checkpoint {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Parts [begin, end) of dimension `dim`, each cut evenly among `ranks` and given to rank `rank`.
Split cut(const at::Tensor& whole, int64_t dim, const std::vector<int64_t>& borders, int64_t rank, int64_t ranks) {
  Split split{{}, dim};
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const int64_t size = borders[i + 1] - borders[i], first = borders[i] + size * rank / ranks,
                  last = borders[i] + size * (rank + 1) / ranks;
    if (first == last) continue;
    Box box{Shape(whole.dim(), 0), whole.sizes().vec()};
    box.offsets[dim] = first, box.sizes[dim] = last - first;
    split.boxes.push_back(box);
  }
  return split;
}

struct Tensor {
  std::string name;
  at::Tensor whole;
  std::function<Split(int64_t rank, int64_t ranks)> split;  // null: every rank of the tensor axis has all of it
};

// One of each kind of split that parallel layers have.
std::vector<Tensor> make_model() {
  at::manual_seed(3);
  std::vector<Tensor> all;
  const auto add = [&](const std::string& name, const at::Tensor& whole, int64_t dim, const std::vector<int64_t>& borders) {
    all.push_back(
        {"parameter/" + name, whole, [=](int64_t rank, int64_t ranks) { return cut(whole, dim, borders, rank, ranks); }});
  };
  add("qkv", at::randn({24, 6}), 0, {0, 8, 16, 24});                               // fused, by rows
  add("conv qkv", at::randn({6, 36}), 1, {0, 12, 24, 36});                         // fused, by columns, as GPT-2 stores it
  add("grouped heads", at::randn({5, 24}).to(at::kBFloat16), 1, {0, 16, 20, 24});  // more queries than keys and values
  add("row parallel", at::randn({7, 8}).to(at::kDouble), 1, {0, 8});
  add("uneven", at::randn({9, 3}), 0, {0, 9});
  all.push_back({"parameter/experts", at::randn({8, 3, 5}), [](int64_t rank, int64_t ranks) {  // dealt in turn
                   Split split;
                   for (int64_t expert = rank; expert < 8; expert += ranks) split.boxes.push_back({{expert, 0, 0}, {1, 3, 5}});
                   return split;
                 }});
  all.push_back({"parameter/norm", at::randn({11}), nullptr});
  all.push_back({"state/step", at::scalar_tensor(4.0), nullptr});
  return all;
}

// Made once: the ranks are threads that share the generator.
const std::vector<Tensor>& model() {
  static const auto& tensors = *new std::vector<Tensor>(make_model());
  return tensors;
}

// The part of a rank of the tensor axis: its boxes side by side.
at::Tensor local_of(const at::Tensor& whole, const Split& split) {
  if (split.is_whole()) return whole;
  std::vector<at::Tensor> parts;
  for (const Box& box : split.boxes) {
    at::Tensor part = whole;
    for (size_t d = 0; d < box.sizes.size(); ++d) part = part.narrow(static_cast<int64_t>(d), box.offsets[d], box.sizes[d]);
    parts.push_back(part);
  }
  return at::cat(parts, split.dim);
}

class SplitCheckpoint : public CheckpointTest {
 protected:
  // Each rank gives its data rank's run of its tensor rank's boxes; what the tensor axis replicates, its first rank gives.
  void save(const MeshShape& mesh, const std::string& tag) {
    const auto errors = ThreadRanks(mesh.world_size()).run([&](Ranks ranks) {
      ranks.mesh = mesh;
      Saver saver(folder(), ranks);
      Content content{.tag = tag};
      const int64_t t = mesh.coordinate(ranks.rank, "tensor"), d = mesh.coordinate(ranks.rank, "data");
      for (const Tensor& tensor : model()) {
        if (!tensor.split && t > 0) continue;
        const Split split = tensor.split ? tensor.split(t, mesh.size("tensor")) : Split();
        const at::Tensor local = local_of(tensor.whole, split).flatten();
        const int64_t begin = local.numel() * d / mesh.size("data"), end = local.numel() * (d + 1) / mesh.size("data");
        if (begin == end) continue;
        content.slices.push_back({tensor.name, tensor.whole.sizes().vec(), begin,
                                  local.narrow(0, begin, end - begin).contiguous(), nullptr, false, split});
      }
      saver.save(content, {.continues = true});
    });
    ASSERT_THAT(errors, Each(""));
  }

  // Every rank of a mesh reads its own part.
  void expect_loads(const MeshShape& mesh, const std::string& tag) {
    SCOPED_TRACE(tag + " at " + mesh.text());
    const Opened opened = open(folder(), {.tag = tag});
    for (uint32_t rank = 0; rank < mesh.world_size(); ++rank) {
      const int64_t t = mesh.coordinate(rank, "tensor"), d = mesh.coordinate(rank, "data");
      std::vector<Target> targets;
      std::vector<at::Tensor> expected;
      for (const Tensor& tensor : model()) {
        const Split split = tensor.split ? tensor.split(t, mesh.size("tensor")) : Split();
        const at::Tensor local = local_of(tensor.whole, split).flatten();
        const int64_t begin = local.numel() * d / mesh.size("data"), end = local.numel() * (d + 1) / mesh.size("data");
        expected.push_back(local.narrow(0, begin, end - begin));
        targets.push_back({tensor.name, begin, at::empty({end - begin}, local.options()), nullptr, split});
      }
      opened.read(targets);
      for (size_t i = 0; i < targets.size(); ++i) EXPECT_TRUE(at::equal(targets[i].into, expected[i])) << rank << targets[i].name;
    }
  }
};

TEST_F(SplitCheckpoint, what_one_mesh_saves_every_other_loads_bit_for_bit) {
  const std::vector<MeshShape> meshes = {
      MeshShape({{"data", 1}, {"tensor", 1}}), MeshShape({{"data", 2}, {"tensor", 2}}),
      MeshShape({{"data", 1}, {"tensor", 4}}), MeshShape({{"data", 4}, {"tensor", 1}}),
      MeshShape({{"tensor", 2}, {"data", 2}}), MeshShape({{"data", 2}, {"tensor", 2}}, {3, 1, 0, 2})};
  const auto tag = [](size_t mesh) { return formatted("mesh{}", mesh); };
  for (size_t i = 0; i < meshes.size(); ++i) save(meshes[i], tag(i));
  for (size_t i = 0; i < meshes.size(); ++i) {
    const Opened opened = open(folder(), {.tag = tag(i)});
    EXPECT_EQ(opened.mesh(), meshes[i]);
    EXPECT_THAT(opened.verify(), IsEmpty());
    for (const Tensor& tensor : model()) EXPECT_TRUE(at::equal(read_whole(opened, tensor.name), tensor.whole)) << tensor.name;
    for (const MeshShape& loaded : meshes) expect_loads(loaded, tag(i));
  }
}

TEST_F(SplitCheckpoint, a_matrix_of_12288_rows_cut_along_its_columns_is_one_entry_a_rank) {
  const at::Tensor whole = at::randn({12'288, 512});
  const auto half = [&](int64_t rank) { return cut(whole, 1, {0, 512}, rank, 2); };
  const auto errors = ThreadRanks(2).run([&](Ranks ranks) {
    ranks.mesh = MeshShape({{"data", 1}, {"tensor", 2}});
    Saver(folder(), ranks)
        .save(
            {.tag = "t",
             .slices = {{"w", {12'288, 512}, 0, local_of(whole, half(ranks.rank)).flatten(), nullptr, false, half(ranks.rank)}}},
            {});
  });
  ASSERT_THAT(errors, Each(""));
  EXPECT_LT(fs::file_size(file("t", "manifest.json")), 3000u);
  const Manifest manifest = parse_manifest(read_text(file("t", "manifest.json")), "m");
  EXPECT_EQ(manifest.tensors[0].slices.size(), 2u);
  const Opened opened = open(folder(), {});
  EXPECT_TRUE(at::equal(read_whole(opened, "w"), whole));
  const Split quarter = cut(whole, 1, {0, 512}, 2, 4);
  at::Tensor into = at::empty({12'288, 128});
  opened.read({{"w", 0, into, nullptr, quarter}});
  EXPECT_TRUE(at::equal(into, local_of(whole, quarter)));
  opened.read({{"w", 0, into.view({3072, 512})}});  // rows
  EXPECT_TRUE(at::equal(into.view({3072, 512}), whole.narrow(0, 0, 3072)));
}

TEST_F(SplitCheckpoint, a_rank_file_is_plain_safetensors_with_local_shapes) {
  save(MeshShape({{"data", 1}, {"tensor", 2}}), "t");
  const auto tensors = load_safetensors(file("t", "rank-00001.safetensors"));
  const at::Tensor qkv = model()[0].whole;
  ASSERT_TRUE(tensors.contains("parameter/qkv#24")) << "row 4 of 6 columns comes first";
  EXPECT_TRUE(at::equal(tensors.at("parameter/qkv#24"), local_of(qkv, cut(qkv, 0, {0, 8, 16, 24}, 1, 2))));
  EXPECT_FALSE(tensors.contains("parameter/norm"));
}

TEST_F(SplitCheckpoint, exports_and_loads_of_weights_see_whole_tensors_and_the_first_ranks_buffers) {
  save(MeshShape({{"data", 2}, {"tensor", 2}}), "t");
  const auto errors = ThreadRanks(4).run([&](Ranks ranks) {  // two stages, each with a buffer of its own and one that both have
    ranks.mesh = MeshShape({{"pipe", 2}, {"data", 2}});
    const std::string mine = formatted("{}.pipe{}", ranks.rank % 2, ranks.rank / 2);
    const at::Tensor value = at::full({2}, ranks.rank, at::kFloat);
    Content content{.tag = "pipe"};
    content.slices = {whole(formatted("buffer/{}/of stage {}", mine, ranks.rank / 2), value),
                      whole(formatted("buffer/{}/of both", mine), value)};
    Saver(folder(), ranks).save(content, {.save_latest = false, .continues = true});
  });
  ASSERT_THAT(errors, Each(""));
  export_model(open(folder(), {}), (root_ / "out").string(), {});
  const auto tensors = load_safetensors((root_ / "out/model.safetensors").string());
  size_t parameters = 0;
  for (const Tensor& tensor : model()) {
    if (!tensor.name.starts_with("parameter/")) continue;
    ++parameters;
    EXPECT_TRUE(at::equal(tensors.at(tensor.name.substr(10)), tensor.whole)) << tensor.name;
  }
  EXPECT_EQ(tensors.size(), parameters);
  std::map<std::string, std::string> buffers;
  for (const auto& [name, info] : weights_of(open(folder(), {.tag = "pipe"}))) buffers[name] = info.name;
  EXPECT_EQ(buffers, (std::map<std::string, std::string>{{"of both", "buffer/0.pipe0/of both"},
                                                         {"of stage 0", "buffer/0.pipe0/of stage 0"},
                                                         {"of stage 1", "buffer/0.pipe1/of stage 1"}}));
}

// ---- what cannot be

TEST_F(SplitCheckpoint, boxes_that_overlap_or_leave_a_gap_are_refused_by_tensor_and_elements) {
  const auto two = [&](const Split& first, const Split& second) {
    const auto errors = ThreadRanks(2).run([&](Ranks ranks) {
      const Split& mine = ranks.rank ? second : first;
      ranks.mesh = MeshShape({{"tensor", 2}});
      Saver(folder(), ranks)
          .save(
              {.tag = "t", .slices = {{"w", {4, 8}, 0, at::zeros({numel_of(local_shape({4, 8}, mine))}), nullptr, false, mine}}},
              {});
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_FALSE(fs::exists(folder() + "/t"));
    return errors[0];
  };
  const auto columns = [](int64_t from, int64_t to) { return Split{{{{0, from}, {4, to - from}}}, 1}; };
  EXPECT_THAT(two(columns(0, 5), columns(4, 8)),
              HasSubstr("tensor 'w' has elements [0:4, 4:5] twice: the ranks' slices must cover"));
  EXPECT_THAT(two(columns(0, 3), columns(4, 8)), HasSubstr("tensor 'w' misses elements [0:4, 3:4] of [4, 8]: the ranks' slices"));
  EXPECT_THAT(two(columns(0, 4), columns(5, 9)),
              AllOf(HasSubstr("rank 1: "), HasSubstr("'w' cannot be saved: it has a box from 5 over 4 in dimension 1")));
  EXPECT_THAT(two(columns(0, 4), {{{{0, 4}, {4, 2}}, {{0, 6}, {3, 2}}}, 1}),
              HasSubstr("has boxes of 4 and 3 elements in dimension 0"));
}

TEST_F(SplitCheckpoint, ranks_must_save_with_one_mesh_of_their_number) {
  const auto errors = ThreadRanks(2).run([&](Ranks ranks) {
    ranks.mesh = ranks.rank ? MeshShape({{"tensor", 2}}) : MeshShape({{"data", 2}});
    Saver(folder(), ranks).save(small_content("t"), {});
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks save with different meshes: rank 0 has data 2, rank 1 tensor 2")));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { Saver(folder(), {.mesh = MeshShape({{"data", 2}})}); }),
              HasSubstr("a mesh of data 2 was given to save from 1 ranks"));
}

TEST_F(SplitCheckpoint, a_manifest_whose_boxes_or_mesh_lie_is_refused) {
  const auto errors = ThreadRanks(2).run([&](Ranks ranks) {
    ranks.mesh = MeshShape({{"data", 1}, {"tensor", 2}});
    const Split rows{{{{ranks.rank, 0}, {1, 6}}, {{2 + ranks.rank, 0}, {1, 6}}}, 0};
    Saver(folder(), ranks).save({.tag = "t", .slices = {{"w", {4, 6}, 0, at::zeros({12}), nullptr, false, rows}}}, {});
  });
  ASSERT_THAT(errors, Each(""));
  const std::string good = read_text(file("t", "manifest.json"));
  ASSERT_EQ(format_manifest(parse_manifest(good, "m")), good);
  struct Lie {
    const char *from, *to, *reason;
  };
  const char* const kFirst = R"({"offsets":[0,0],"sizes":[1,6]})";
  for (const Lie& lie : {
           Lie{kFirst, R"({"offsets":[1,0],"sizes":[1,6]})", "tensor 'w' has elements [1:2, 0:6] twice"},
           Lie{R"({"offsets":[1,0],"sizes":[1,6]})", R"({"offsets":[3,0],"sizes":[1,6]})",
               "tensor 'w' has elements [3:4, 0:6] twice"},
           Lie{"\"numel\":12", "\"numel\":9", "tensor 'w' misses elements [2:3, 3:6] of [4, 6]"},
           Lie{"\"begin\":0", "\"begin\":1", "reaches from element 1 over 12, its boxes have 12"},
           Lie{kFirst, R"({"offsets":[0,1],"sizes":[1,6]})", "has a box from 1 over 6 in dimension 1, which has 6 elements"},
           Lie{kFirst, R"({"offsets":[0,0],"sizes":[1,0]})", "has a box from 0 over 0"},
           Lie{kFirst, R"({"offsets":[0],"sizes":[6]})", "has a box of 1 offsets and 1 sizes"},
           Lie{kFirst, R"({"offsets":[0,0]})", "a box has no 'sizes'"},
           Lie{kFirst, R"({"offsets":[0,-1],"sizes":[1,6]})", "'offsets' is not a size"},
           Lie{kFirst, R"({"offsets":[0,0],"sizes":[4,6]})", "has boxes with more elements than the tensor"},
           Lie{kFirst, "3", "a box is not a dictionary"},
           Lie{"\"dim\":0", "\"dim\":2", "side by side along dimension 2 of 2"},
           Lie{"\"dim\":0", "\"dime\":0", "has no 'dim'"},
           Lie{"\"boxes\":[", "\"boxes\":[],\"other\":[", "has an empty list of boxes"},
           Lie{"[\"data\",1]", "[\"data\",2]", "has a mesh of data 2 x tensor 2 for 2 ranks"},
           Lie{"[\"data\",1]", "[\"tensor\",1]", "'mesh': a mesh names the axis 'tensor' twice"},
           Lie{"[\"data\",1]", "[\"data\",0]", "'mesh': axis 'data' of a mesh has size 0"},
           Lie{"[\"data\",1]", "[1,1]", "an axis that is not a name and a size"},
           Lie{"\"mesh\"", "\"mash\"", "has no 'mesh'"},
           Lie{"\"axes\":[", "\"ranks\":[1,1],\"axes\":[",
               "'mesh': a mesh of data 1 x tensor 2 was given rank 1, which is given twice"},
       })
    EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { parse_manifest(lying(good, lie.from, lie.to), "m"); }),
                AllOf(HasSubstr("m: "), HasSubstr(lie.reason)))
        << lie.from << " -> " << lie.to;
}

TEST_F(SplitCheckpoint, targets_that_cannot_be_are_refused_with_their_name) {
  Saver(folder(), {}).save({.tag = "t", .slices = {whole("w", at::zeros({4, 6}))}}, {});
  const Opened opened = open(folder(), {});
  const auto refused = [&](const at::Tensor& into, const Split& split) {
    return error_of(ErrorCode::kArgument, [&] { opened.read({{"w", 0, into, nullptr, split}}); });
  };
  EXPECT_THAT(refused(at::zeros({12}), {{{{0, 4}, {4, 3}}}, 1}),
              HasSubstr("tensor 'w' is read into a part that has a box from 4 over 3"));
  EXPECT_THAT(refused(at::zeros({13}), {{{{0, 3}, {4, 3}}}, 1}), HasSubstr("tensor 'w' has 12 elements, asked for 13 from 0"));
}

// ---- format 1

TEST(Format1, checkpoints_written_before_format_2_are_read_bit_for_bit) {
  const std::string folder = GANNET_SOURCE_DIR "/tests/checkpoint/data/format1";
  for (const char* tag : {"boundary", "between"}) {
    SCOPED_TRACE(tag);
    ASSERT_THAT(read_text(folder + "/" + tag + "/manifest.json"), HasSubstr("\"format\": 1,"));
    const Opened opened = open(folder, {.tag = tag});
    EXPECT_EQ(opened.mesh(), MeshShape({{"data", 2}}));
    EXPECT_THAT(opened.verify(), IsEmpty());
    const auto expected = load_safetensors(folder + "/" + tag + "/expected.safetensors");
    ASSERT_EQ(opened.tensors().size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(at::equal(read_whole(opened, name), tensor)) << name;
      if (tensor.dim() != 2) continue;
      const Split columns = cut(tensor, 1, {0, tensor.size(1)}, 1, 2);
      at::Tensor into = at::empty(local_shape(tensor.sizes().vec(), columns), tensor.options());
      opened.read({{name, 0, into, nullptr, columns}});
      EXPECT_TRUE(at::equal(into, local_of(tensor, columns))) << name;
    }
    EXPECT_EQ(opened.rank_document(1).find("states")->at("counter").as_int(), 11);
  }
}

class Format1Files : public CheckpointTest {};

TEST_F(Format1Files, are_written_byte_for_byte_by_the_ranks_of_one_axis) {
  const std::string from = GANNET_SOURCE_DIR "/tests/checkpoint/data/format1/boundary/";
  const Manifest manifest = parse_manifest(read_text(from + "manifest.json"), "m");
  const Opened opened = open(GANNET_SOURCE_DIR "/tests/checkpoint/data/format1", {.tag = "boundary"});
  const auto errors = ThreadRanks(2).run([&](const Ranks& ranks) {
    std::map<uint64_t, Slice> slices;  // in the order of the file
    for (const TensorEntry& tensor : manifest.tensors)
      for (const SliceEntry& slice : tensor.slices) {
        if (slice.file != ranks.rank) continue;
        at::Tensor data = at::empty({slice.numel}, tensor.info.dtype);
        opened.read({{tensor.info.name, slice.begin, data}});
        slices[slice.offset] = {tensor.info.name, tensor.info.shape, slice.begin, data};
      }
    Content content{.tag = "t"};
    for (const auto& [offset, slice] : slices) content.slices.push_back(slice);
    Saver(folder(), ranks).save(content, {});
  });
  ASSERT_THAT(errors, Each(""));
  for (const char* name : {"rank-00000.safetensors", "rank-00001.safetensors"})
    EXPECT_TRUE(read_text(file("t", name)) == read_text(from + name)) << name;
}

}  // namespace
}  // namespace gannet::checkpoint

// What InfiniAttention promises about streams: bits that do not depend on cuts, batches, threads and views; states that
// can be copied, taken back, saved; documents; closed gates.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "layers/infini_streams.hpp"
#include "support/tensor_map.hpp"

using heed::HeadLayout;
using heed::Index;
using heed::Tensor;
using heed::View;
using test::InfiniSettings;
using test::Rule;
using test::Streams;

namespace {

constexpr HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .value_head_dim = 5};

// The rows `first` … first + rows − 1 of some streams.
template <class T>
Streams<T> rows_of(const Streams<T>& streams, Index first, Index rows) {
  Streams<T> part = streams;
  part.query = Tensor<T, 4>(streams.query.view().slice(0, first, rows));
  part.key = Tensor<T, 4>(streams.key.view().slice(0, first, rows));
  part.value = Tensor<T, 4>(streams.value.view().slice(0, first, rows));
  if (!streams.valid.empty()) part.valid = Tensor<bool, 2>(streams.valid.view().slice(0, first, rows));
  if (!streams.reset.empty()) part.reset = Tensor<bool, 2>(streams.reset.view().slice(0, first, rows));
  return part;
}

// Calls f(streams, what) for plain streams, padded ones, ones with documents, ones with both.
template <class T, class F>
void for_each_kind(Index batch, Index seq, F&& f) {
  for (int what = 0; what < 4; ++what) {
    Streams<T> streams(heads, batch, seq);
    if ((what & 1) != 0) streams.add_padding();
    if ((what & 2) != 0) streams.add_documents();
    CAPTURE(what);
    f(streams);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("case 31: infini: one call, any cut, token by token: the same bits, and the same state", T, float,
                   double, heed::bfloat16) {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    for (const InfiniSettings& settings : test::all_settings) {
      for_each_kind<T>(3, 70, [&](const Streams<T>& streams) {
        const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(settings));
        auto state = core->make_state(3);
        const auto want = test::run(*core, streams, state, {70});
        for (const auto& calls : {std::vector<Index>(70, 1), test::random_cut(70, 4, 1), test::random_cut(70, 30, 2),
                                  std::vector<Index>{0, 64, 0, 6}}) {
          auto other = core->make_state(3);
          CHECK(test::same_bits(test::run(*core, streams, other, calls), want));
          CHECK(test::same_state(state, other));
        }
      });
    }
  });
}

TEST_CASE_TEMPLATE("case 31: infini: a row alone, in a batch, beside rows in other places: the same bits", T, float,
                   double) {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    for (const InfiniSettings& settings : test::all_settings) {
      for_each_kind<T>(6, 40, [&](const Streams<T>& streams) {
        const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(settings));
        auto together = core->make_state(6);
        const auto want = test::run(*core, streams, together, {40});
        for (const Index row : {0, 5}) {
          auto alone = core->make_state(1);
          const auto got = test::run(*core, rows_of(streams, row, 1), alone, {40});
          CHECK(test::same_bits(got.view()[0], want.view()[row]));
          CHECK(test::same_bits(alone.memory()[0], std::as_const(together).memory()[row]));
          CHECK(alone.pending()(0) == together.pending()(row));
        }
      });
      // Rows that begin in different places of their segments, without any flags.
      const Streams<T> streams(heads, 2, 40);
      const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(settings));
      auto lagging = core->make_state(2);
      auto first = streams;
      first.valid = Tensor<bool, 2>({2, 40});
      for (Index t = 0; t < 40; ++t) first.valid(0, t) = true;  // row 1 waits for three tokens
      test::run(*core, first, lagging, {3});
      CHECK(lagging.pending()(0) == 3);
      CHECK(lagging.pending()(1) == 0);
      const auto got = test::run(*core, streams, lagging, {20, 1, 1, 15}, 3);
      auto alone = core->make_state(1);
      const auto want = test::run(*core, rows_of(streams, 1, 1), alone, {37}, 3);
      CHECK(test::same_bits(got.view()[1], want.view()[0]));
      auto whole = core->make_state(1);
      const auto row0 = test::run(*core, rows_of(streams, 0, 1), whole, {40});
      CHECK(test::same_bits(got.view()[0], row0.view()[0].slice(0, 3, 37)));
    }
  });
}

TEST_CASE_TEMPLATE("case 31: infini: any number of threads gives the bits of none", T, float, double, heed::float16) {
  constexpr HeadLayout wide{.num_heads = 4, .num_kv_heads = 2, .head_dim = 64};
  for (const Index batch : {1, 3}) {
    Streams<T> streams(wide, batch, 400);
    if (batch == 3) streams.add_padding();
    const auto options = test::options_of({.segment_length = 150, .rule = Rule::delta});
    const heed::Simd simd;
    const auto plain = test::make_core<T>(simd, wide, streams.beta, options);
    auto state = plain->make_state(batch);
    const auto want = test::run(*plain, streams, state, {300, 100});
    test::ReversePool pool;
    const heed::Cpu three(pool);
    const heed::Cpu one;
    for (const heed::Cpu* cpu : {&one, &three}) {
      const auto core = test::make_core<T>(*cpu, wide, streams.beta, options);
      auto other = core->make_state(batch);
      CHECK(test::same_bits(test::run(*core, streams, other, {300, 100}), want));
      CHECK(test::same_state(state, other));
    }
    CHECK(pool.parts_elsewhere() > 0);
  }
}

TEST_CASE_TEMPLATE("case 20: infini: views with gaps and off alignment: the bits of their copies", T, float,
                   heed::bfloat16) {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    for_each_kind<T>(3, 23, [&](const Streams<T>& streams) {
      const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(test::all_settings[1]));
      auto state = core->make_state(3);
      const auto want = test::run(*core, streams, state, {23});
      auto other = core->make_state(3);
      heed::Workspace workspace(core->workspace_size(3, 23));
      test::Strided<T, 4> out(Tensor<T, 4>({3, 23, 4, 5}));
      heed::InfiniAttentionCall call;
      if (!streams.valid.empty()) call.valid = streams.valid;
      if (!streams.reset.empty()) call.reset = streams.reset;
      core->forward(test::Strided<T, 4>(streams.query).view(), test::Strided<T, 4>(streams.key).view(),
                    test::Strided<T, 4>(streams.value).view(), other, out.view(), workspace, call);
      CHECK(test::same_bits(out.view(), want));
      CHECK(out.intact());
      CHECK(test::same_state(state, other));
    });
    // One stream, repeated along the batch.
    const Streams<T> streams(heads, 1, 12);
    const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(test::all_settings[0]));
    auto one = core->make_state(1);
    const auto want = test::run(*core, streams, one, {12});
    auto state = core->make_state(3);
    heed::Workspace workspace(core->workspace_size(3, 12));
    Tensor<T, 4> out({3, 12, 4, 5});
    core->forward(test::repeated(3, View<const T, 3>(streams.query.view()[0])),
                  test::repeated(3, View<const T, 3>(streams.key.view()[0])),
                  test::repeated(3, View<const T, 3>(streams.value.view()[0])), state, out, workspace);
    CHECK(test::same_bits(out.view()[2], want.view()[0]));
  });
}

TEST_CASE("infini: closed gates are causal attention inside the segment, bit for bit; the memory is not read") {
  const float infinity = std::numeric_limits<float>::infinity();
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    for (const bool rotary : {false, true}) {
      Streams<float> streams(heads, 2, 23);
      for (const int closed : {2, 4}) {  // heads 0 and 1, then all
        for (Index h = 0; h < closed; ++h) streams.beta(h) = -infinity;
        const auto core = test::make_core<float>(backend, heads, streams.beta,
                                                 test::options_of({.segment_length = 8, .rotary = rotary}));
        auto state = core->make_state(2);
        const auto got = test::run(*core, streams, state, {23});
        Streams<float> poisoned = streams;
        auto poison = core->make_state(2);
        for (float& element : poison.memory().span()) element = std::numeric_limits<float>::quiet_NaN();
        for (float& element : poison.normalizer().span()) element = std::numeric_limits<float>::quiet_NaN();
        const auto beside_nan = test::run(*core, poisoned, poison, {23});
        bool same = true;
        bool open_differs = false;
        for (Index first = 0; first < 23; first += 8) {
          const Index n = first + 8 < 23 ? 8 : 7;
          const auto want = test::local_attention(backend, streams, first, n, rotary);
          const auto part = got.view().slice(1, first, n);
          const auto other = beside_nan.view().slice(1, first, n);
          same = same && test::same_bits(part.slice(2, 0, closed), want.view().slice(2, 0, closed));
          same = same && test::same_bits(other.slice(2, 0, closed), want.view().slice(2, 0, closed));
          open_differs = open_differs || !test::same_bits(part.slice(2, 2, 2), want.view().slice(2, 2, 2));
        }
        CHECK(same);
        CHECK(open_differs == (closed == 2));
      }
    }
  });
}

TEST_CASE("infini: open gates bypass an empty memory: the first segment is local attention, bit for bit") {
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    const Streams<float> streams(heads, 1, 8);
    Streams<float> closed = streams;
    closed.beta.fill(-std::numeric_limits<float>::infinity());
    const auto options = test::options_of({.segment_length = 8});
    const auto open_core = test::make_core<float>(backend, heads, streams.beta, options);
    const auto closed_core = test::make_core<float>(backend, heads, closed.beta, options);
    auto one = open_core->make_state(1);
    auto other = closed_core->make_state(1);
    CHECK(test::same_bits(test::run(*open_core, streams, one, {8}), test::run(*closed_core, closed, other, {8})));
    CHECK(test::same_state(one, other));  // what is not read is written all the same
    CHECK(one.normalizer()(0, 0, 0) > 0);
  });
}

TEST_CASE("infini: a document begun in a stream equals the document alone") {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    for (const InfiniSettings& settings : test::all_settings) {
      Streams<float> streams(heads, 2, 50);
      streams.reset = Tensor<bool, 2>({2, 50});
      streams.reset(1, 13) = true;  // in the middle of a segment
      const auto core = test::make_core<float>(backend, heads, streams.beta, test::options_of(settings));
      auto state = core->make_state(2);
      const auto got = test::run(*core, streams, state, {9, 41});
      Streams<float> plain = streams;
      plain.reset = {};
      auto whole = core->make_state(1);
      CHECK(test::same_bits(got.view()[0], test::run(*core, rows_of(plain, 0, 1), whole, {50}).view()[0]));
      auto document = core->make_state(1);
      const auto want = test::run(*core, rows_of(plain, 1, 1), document, {37}, 13);
      CHECK(test::same_bits(got.view()[1].slice(0, 13, 37), want.view()[0]));
      CHECK(test::same_bits(std::as_const(state).memory()[1], std::as_const(document).memory()[0]));
      CHECK(state.position()(1) == 37);
      CHECK(state.position()(0) == 50);
    }
  });
}

// ---- states

namespace {

// Where states are saved to and loaded from when it is not a file.
class StateMap : public test::TensorMap {
 public:
  void metadata(const std::string& key, const std::string& value) { texts_[key] = value; }
  std::string_view metadata(std::string_view key) const {
    const auto found = texts_.find(std::string(key));
    return found == texts_.end() ? std::string_view() : std::string_view(found->second);
  }

 private:
  std::map<std::string, std::string> texts_;
};
static_assert(heed::TensorSink<StateMap> && heed::TextSource<StateMap>);

}  // namespace

TEST_CASE_TEMPLATE("infini: a clone goes on like the original; a rollback unreads", T, float, double) {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    for (const InfiniSettings& settings : test::all_settings) {
      const Streams<T> streams(heads, 2, 40);
      const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(settings));
      auto state = core->make_state(2);
      test::run(*core, streams, state, {24});
      const Index pending = static_cast<Index>(state.pending()(0));
      REQUIRE(pending >= 3);
      auto clone = state.clone();
      const auto want = test::run(*core, streams, clone, {16}, 24);
      // Three other tokens are read and taken back: within the open segment, as far as it has room.
      const Index detour = settings.segment_length - pending > 3 ? 3 : settings.segment_length - pending - 1;
      if (detour > 0) {
        test::run(*core, Streams<T>(heads, 2, 40, 77), state, {detour});
        state.rollback(detour);
      }
      state.rollback(2);
      state.rollback(1, 1);
      CHECK(state.pending()(0) == pending - 2);
      CHECK(state.pending()(1) == pending - 3);
      CHECK(state.position()(1) == 21);
      // Row 1 reads its token 21, then both read 22 and 23 again, and go on.
      Streams<T> again = streams;
      again.valid = Tensor<bool, 2>({2, 40});
      again.valid.fill(true);
      again.valid(0, 21) = false;
      test::run(*core, again, state, {3}, 21);
      CHECK(test::same_bits(test::run(*core, streams, state, {16}, 24), want));
      CHECK(test::same_state(state, clone));
    }
  });
}

TEST_CASE_TEMPLATE("infini: a saved state goes on with the same bits", T, float, double, heed::bfloat16) {
  test::for_each_any_backend([&](const test::AnyBackend& backend) {
    for (const InfiniSettings& settings : test::all_settings) {
      Streams<T> streams(heads, 3, 60);
      streams.add_padding();  // rows in different places
      const auto core = test::make_core<T>(backend, heads, streams.beta, test::options_of(settings));
      auto state = core->make_state(3);
      test::run(*core, streams, state, {43});
      StateMap file;
      state.save(file, "layers.1");
      const auto second = core->make_state(3);
      second.save(file, "layers.2.");
      auto loaded = heed::InfiniState<T>::load(file, core->state_layout(), "layers.1");
      CHECK(test::same_state(state, loaded));
      // The first call after loading may answer, only read, or flush.
      auto reading = heed::InfiniState<T>::load(file, core->state_layout(), "layers.1");
      auto flushed = heed::InfiniState<T>::load(file, core->state_layout(), "layers.1");
      auto want_flushed = state.clone();
      heed::Workspace workspace(core->workspace_size(3, 17));
      core->flush(flushed, workspace);
      core->flush(want_flushed, workspace);
      CHECK(test::same_state(flushed, want_flushed));
      const auto want = test::run(*core, streams, state, {17}, 43);
      CHECK(test::same_bits(test::run(*core, streams, loaded, {17}, 43), want));
      CHECK(test::same_state(state, loaded));
      const auto fresh = heed::InfiniState<T>::load(file, core->state_layout(), "layers.2");
      CHECK(test::same_state(fresh, second));
    }
  });
}

TEST_CASE("infini: flush closes a segment where it is; positions count on") {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    const Streams<float> streams(heads, 1, 20);
    const auto core = test::make_core<float>(backend, heads, streams.beta, test::options_of({.segment_length = 16}));
    const auto shorter = test::make_core<float>(backend, heads, streams.beta, test::options_of({.segment_length = 10}));
    auto state = core->make_state(1);
    auto other = shorter->make_state(1);
    heed::Workspace workspace(core->workspace_size(1, 1));
    test::run(*core, streams, state, {10});
    core->flush(state, workspace);
    CHECK(state.pending()(0) == 0);
    CHECK(state.position()(0) == 10);
    test::run(*shorter, streams, other, {10});
    CHECK(test::same_state(state, other));
    CHECK(test::same_bits(test::run(*core, streams, state, {10}, 10), test::run(*shorter, streams, other, {10}, 10)));
    auto empty = core->make_state(1);
    core->flush(empty, workspace);
    CHECK(empty.normalizer()(0, 0, 0) == 0);
    auto nobody = core->make_state(0);
    core->flush(nobody, workspace);
  });
}

// ---- calls

TEST_CASE("infini: progress is told between segments and may end a call, which can be taken up later") {
  test::for_each_any_backend([](const test::AnyBackend& backend) {
    const Streams<float> streams(heads, 1, 1500);
    const auto core = test::make_core<float>(backend, heads, streams.beta, test::options_of({.segment_length = 100}));
    auto state = core->make_state(1);
    const auto want = test::run(*core, streams, state, {30, 1470});

    auto other = core->make_state(1);
    heed::Workspace workspace(core->workspace_size(1, 1500));
    Tensor<float, 4> out({1, 1500, 4, 5});
    out.fill(-7);
    std::vector<Index> told;
    const auto forward = [&](Index first, Index n, Index stop_at) {
      return core->forward(streams.query.view().slice(1, first, n), streams.key.view().slice(1, first, n),
                           streams.value.view().slice(1, first, n), other, out.view().slice(1, first, n), workspace,
                           {.progress = [&](Index done, Index total) {
                             CHECK(total == n);
                             told.push_back(done);
                             return done < stop_at;
                           }});
    };
    CHECK(forward(0, 30, 1000) == 30);
    CHECK(told == std::vector<Index>{30});
    told.clear();
    const Index done = forward(30, 1470, 500);
    CHECK(told == std::vector<Index>{470, 970});  // segments end at 500 and 1000
    CHECK(done == 970);
    CHECK(other.position()(0) == 1000);
    CHECK(other.pending()(0) == 0);
    CHECK(out(0, 1000, 0, 0) == -7);
    CHECK(forward(1000, 500, 10000) == 500);
    CHECK(test::same_bits(out, want));
    CHECK(test::same_state(state, other));
  });
}

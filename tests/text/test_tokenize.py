"""`tigon tokenize`: its token files hold what Transformers makes of the same texts and chats."""

import fcntl
import json
import os
import signal
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from families import AUSTEN, OTHERS, gemma, gpt2, llama2, llama3, mistral, qwen2, smollm2, trained
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TIGON", str(ROOT / "build" / "release" / "bin" / "tigon"))

# As the models have them, as far as is known here. Names are ours.
ALTERNATE = (
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate "
    "user/assistant/user/assistant/...') }}{% endif %}"
)
CHATML = (
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def with_default(system):
    return (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
        + system
        + "<|im_end|>\\n' }}{% endif %}"
        + CHATML
    )


QWEN25 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""  # noqa: E501

# Without what it says of tools.
QWEN3 = r"""{%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""  # noqa: E501

TEMPLATES = {
    "chatml": (qwen2, "{% for message in messages %}" + CHATML),
    "qwen2": (qwen2, with_default("You are a helpful assistant.")),
    "qwen2.5": (qwen2, QWEN25),
    "qwen3": (qwen2, QWEN3),
    "smollm2": (smollm2, with_default("You are a helpful AI assistant named SmolLM, trained by Hugging Face")),
    "llama3": (
        llama3,
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
        "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ),
    "llama2": (
        llama2,
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
        "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
        "{% for message in loop_messages %}" + ALTERNATE + "{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
        "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + "
        "content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + "
        "eos_token }}{% endif %}{% endfor %}",
    ),
    "mistral": (
        mistral,
        "{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + "
        "message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}"
        "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    ),
    "gemma": (
        gemma,
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}" + ALTERNATE + "{% if (message['role'] == 'assistant') %}{% set role = "
        "'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + "
        "message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{'<start_of_turn>model\\n'}}{% endif %}",
    ),
    "phi3": (
        smollm2,
        "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + "
        "message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + "
        "'<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    ),
}  # fmt: skip
EDGES = {
    llama2: ("<s>", "</s>"), mistral: ("<s>", "</s>"), gemma: ("<bos>", "<eos>"), qwen2: ("<|endoftext|>", "<|im_end|>"),
    smollm2: ("<|im_start|>", "<|im_end|>"), llama3: ("<|begin_of_text|>", "<|eot_id|>"), gpt2: ("<|endoftext|>",) * 2,
}  # fmt: skip


@pytest.fixture(scope="session")
def tigon():
    def run(*words, check=True):
        result = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result

    return run


@pytest.fixture
def folder(tmp_path):
    """A model's folder of a family, as save_pretrained leaves it, and its tokenizer."""

    def make(family, template=None):
        tokenizer = Tokenizer.from_str(trained(family).to_str())
        bos, eos = EDGES[family]
        if template and "start_header_id" in template:
            tokenizer.add_special_tokens(
                [AddedToken(f"<|{side}_header_id|>", normalized=False) for side in ("start", "end")]
            )
        theirs = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, chat_template=template
        )
        theirs.save_pretrained(tmp_path / "model")
        return tmp_path / "model", theirs

    return make


class Tokens:
    """A token file of version 2, read as docs/training.md describes it."""

    def __init__(self, path):
        data = Path(path).read_bytes()
        magic, version, width, zero, self.vocab = struct.unpack_from("<8sIIQQ", data)
        count, documents, masked, end = struct.unpack_from("<QQQ8s", data, len(data) - 32)
        assert (magic, version, zero, end) == (b"TIGONTOK", 2, 0, b"TIGONEND")
        self.ids = np.frombuffer(data, f"<u{width}", count, 32).tolist()
        at = 32 + count * width
        bits = np.frombuffer(data, np.uint8, (count + 7) // 8, at) if masked else np.array([], np.uint8)
        self.learnt = np.unpackbits(bits, count=count, bitorder="little").tolist() if masked else [1] * count
        self.starts = np.frombuffer(data, "<u8", documents, at + len(bits)).tolist()
        assert at + len(bits) + 8 * documents + 32 == len(data)

    def documents(self):
        ends = [*self.starts[1:], len(self.ids)]
        return [(self.ids[a:b], self.learnt[a:b]) for a, b in zip(self.starts, ends, strict=True)]


def write_lines(path, samples):
    path.write_text("".join((s if isinstance(s, str) else json.dumps(s)) + "\n" for s in samples))
    return path


CHATS = [
    [("user", "Who are you?"), ("assistant", "A tiger and a lion, in a way.")],
    [
        ("system", " Be brief. "),
        ("user", "  Say hello \n"),
        ("assistant", " Hello! \n"),
        ("user", "é🙂"),
        ("assistant", "ok"),
    ],
    [
        ("user", "\n\ncode:\n\tx = 1"),
        ("assistant", "\n```\nx = 2\n```\n\n"),
        ("user", "Thanks"),
        ("assistant", "'s all right"),
    ],
    [("user", "Say <s> or <|im_end|>"), ("assistant", "  two  spaces")],
]


@pytest.mark.parametrize("recognised", [False, True], ids=["named", "recognised"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_chats_are_what_transformers_makes_of_them(name, recognised, tigon, folder, tmp_path):
    family, template = TEMPLATES[name]
    model, theirs = folder(family, template)
    chats = [[{"role": role, "content": text} for role, text in chat] for chat in CHATS]
    if name in ("mistral", "gemma"):
        chats = [chat for chat in chats if chat[0]["role"] != "system"]
    lines = write_lines(tmp_path / "chats.jsonl", [{"messages": chat} for chat in chats])
    if not recognised:  # whatever the folder says
        (model / "chat_template.jinja").write_text("{{ messages }}")
    words = [] if recognised and template != QWEN3 else ["--template", name]
    tigon("tokenize", lines, "--tokenizer", model, "--output", tmp_path / "tokens.bin", *words)
    file = Tokens(tmp_path / "tokens.bin")
    assert file.vocab == len(theirs)
    for chat, (ids, learnt) in zip(chats, file.documents(), strict=True):
        assert ids == theirs.apply_chat_template(chat, tokenize=True, return_dict=False, chat_template=template)
        # What is learnt is the answers, each with the token that ends it.
        strip = name in ("llama2", "llama3", "gemma")
        answers = [m["content"].strip() if strip else m["content"] for m in chat if m["role"] == "assistant"]
        runs, last = [], 0
        for token, flag in zip(ids, learnt, strict=True):
            if flag and not last:
                runs.append([])
            if flag:
                runs[-1].append(token)
            last = flag
        assert len(runs) == len(answers)
        end = {"gemma": "<end_of_turn>", "phi3": "<|end|>", "llama3": "<|eot_id|>"}.get(name, EDGES[family][1])
        for run, answer in zip(runs, answers, strict=True):
            text = theirs.decode(run, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            assert text.replace(end, "").strip() == answer.strip()
            assert text.rstrip().endswith(end)


def test_thoughts_have_no_place(tigon, folder, tmp_path):
    model, _ = folder(*TEMPLATES["qwen3"])
    chats = [
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": b}] for b in ("b", "<think>c</think>b")
    ]
    lines = write_lines(tmp_path / "chats.jsonl", [{"messages": chat} for chat in chats])
    words = ["tokenize", lines, "--tokenizer", model, "--output", tmp_path / "tokens.bin"]
    assert "--template" in tigon(*words, check=False).stderr  # this text is not known
    said = tigon(*words, "--template", "qwen3").stdout
    assert f"dropped 1 line: chat template: it has no place for thoughts ({lines}:2)" in said


@pytest.mark.parametrize("name", ["mistral", "gemma", "llama2"])
def test_chats_that_a_template_does_not_take(name, tigon, folder, tmp_path):
    model, _ = folder(*TEMPLATES[name])
    good = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    samples = [
        {"messages": good},
        {"messages": [*good, *good[1:]]},
        {"messages": good[1:]},
        {"messages": [*good, {"role": "tool", "content": "x"}]},
        {"messages": good[:1]},
        {"messages": []},
    ]
    lines = write_lines(tmp_path / "chats.jsonl", samples)
    said = tigon("tokenize", lines, "--tokenizer", model, "--output", tmp_path / "tokens.bin").stdout
    assert "dropped 3 lines: chat template: user and assistant do not take turns" in said
    assert "nobody answers in this chat" in said
    assert "there are no messages" in said
    assert len(Tokens(tmp_path / "tokens.bin").starts) == 1


@pytest.mark.parametrize("family", [gpt2, llama3, llama2, gemma], ids=lambda f: f.__name__)
def test_texts(family, tigon, folder, tmp_path):
    model, theirs = folder(family)
    end = theirs.eos_token_id
    texts = [AUSTEN[:5000], OTHERS, "a", " \n"]
    lines = write_lines(tmp_path / "texts.jsonl", [{"text": text, "other": 1} for text in texts])
    (tmp_path / "book.txt").write_text(AUSTEN[:300_000])
    tigon("tokenize", lines, tmp_path / "book.txt", "--tokenizer", model, "--output", tmp_path / "tokens.bin")
    documents = Tokens(tmp_path / "tokens.bin").documents()
    for text, (ids, learnt) in zip([*texts, AUSTEN[:300_000]], documents, strict=True):
        assert ids == [*theirs(text)["input_ids"], end]
        assert all(learnt)


def test_prompts_and_instructions(tigon, folder, tmp_path):
    model, theirs = folder(llama2)
    samples = [
        {"prompt": "Two and two? ", "completion": "Four."},
        {"prompt": "Two", "completion": "gether"},
        {"instruction": "Add.", "input": "2 2", "output": "4"},
        {"instruction": "Sing.", "input": "", "output": "La"},
    ]
    head = "Below is an instruction that describes a task"
    rest = "Write a response that appropriately completes the request.\n\n### Instruction:\n"
    prompts = [
        "Two and two? ",
        "Two",
        f"{head}, paired with an input that provides further context. {rest}Add.\n\n### Input:\n2 2\n\n### Response:\n",
        f"{head}. {rest}Sing.\n\n### Response:\n",
    ]
    lines = write_lines(tmp_path / "samples.jsonl", samples)
    tigon("tokenize", lines, "--tokenizer", model, "--output", tmp_path / "tokens.bin")
    documents = Tokens(tmp_path / "tokens.bin").documents()
    for sample, prompt, (ids, learnt) in zip(samples, prompts, documents, strict=True):
        answer = sample.get("completion") or sample["output"]
        assert ids == [*theirs(prompt + answer)["input_ids"], theirs.eos_token_id]
        before = theirs(prompt)["input_ids"]
        same = next((i for i, (a, b) in enumerate(zip(before, ids, strict=False)) if a != b), len(before))
        assert learnt == [0] * same + [1] * (len(ids) - same)
    tigon("tokenize", lines, "--tokenizer", model, "--output", tmp_path / "all.bin", "--loss-on", "all")
    assert all(Tokens(tmp_path / "all.bin").learnt)


def test_share_gpt_and_alpaca_by_a_template(tigon, folder, tmp_path):
    model, theirs = folder(*TEMPLATES["chatml"])
    chats = [
        [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        [{"role": "user", "content": "Add.\n\n2 2"}, {"role": "assistant", "content": "4"}],
        [{"role": "user", "content": "two parts"}, {"role": "assistant", "content": "a"}],
    ]
    parts = [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]
    samples = [
        {"conversations": [{"from": f, "value": v} for f, v in (("system", "s"), ("human", "q"), ("gpt", "a"))]},
        {"instruction": "Add.", "input": "2 2", "output": "4"},
        {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "a"}]},
    ]
    lines = write_lines(tmp_path / "samples.jsonl", samples)
    tigon("tokenize", lines, "--tokenizer", model, "--output", tmp_path / "tokens.bin")
    for chat, (ids, _) in zip(chats, Tokens(tmp_path / "tokens.bin").documents(), strict=True):
        assert ids == theirs.apply_chat_template(chat, tokenize=True, return_dict=False)


def test_what_is_dropped_is_said(tigon, folder, tmp_path):
    model, _ = folder(gpt2)
    samples = [{"text": "a"}, "{", {"text": ""}, {"text": 1}, "", {"nothing": 1}, "[]", '{"text": "\\ud800"}',
               {"conversations": 1},
               {"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, {"prompt": "x", "completion": ""},
               {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, *["{"] * 7, {"text": "b"}]  # fmt: skip
    lines = write_lines(tmp_path / "samples.jsonl", samples)
    said = tigon(
        "tokenize", lines, "--tokenizer", model, "--template", "chatml", "--output", tmp_path / "tokens.bin"
    ).stdout
    places = ", ".join(f"{lines}:{i}" for i in (2, 8, 13, 14, 15))
    assert f"dropped 9 lines: the line is not JSON ({places}, …)" in said
    for why, line in {
        "the text is empty": 3, '"text" is no text': 4, "it has none of the known fields": 6, "the line is no JSON object": 7,
        "the chat is no list": 9, "a message calls tools": 10, "the answer is empty": 11,
        "a message is not of text alone": 12,
    }.items():  # fmt: skip
        assert any(why in text and f":{line})" in text for text in said.splitlines()), (why, said)
    assert len(Tokens(tmp_path / "tokens.bin").starts) == 2


def test_lines_that_are_odd_and_say_something(tigon, folder, tmp_path):
    """Numbers beyond 64 bits, fields that are null, bytes that are no UTF-8: nothing of that costs a line."""
    model, theirs = folder(*TEMPLATES["chatml"])
    (tmp_path / "lines.jsonl").write_bytes(
        b'{"text": "one", "hash": 18446744073709551615, "other": 123456789012345678901234567890}\n'
        b'{"messages": null, "prompt": null, "text": "two"}\n'
        b'{"text": "\xff three \xe2\x82"}\n'
        b'{"instruction": "four", "input": null, "output": "five"}\n'
        b'{"messages": [{"role": "user", "content": "a", "tool_calls": null}, {"role": "assistant", "content": "b"}]}\n'
    )
    said = tigon("tokenize", tmp_path / "lines.jsonl", "--tokenizer", model, "--output", tmp_path / "t.bin").stdout
    assert "dropped" not in said
    assert "1 pieces of text have bytes that are no UTF-8" in said
    texts = [
        theirs.decode(ids, clean_up_tokenization_spaces=False) for ids, _ in Tokens(tmp_path / "t.bin").documents()
    ]
    end = theirs.eos_token
    assert texts[:3] == ["one" + end, "two" + end, "\ufffd three \ufffd" + end]
    assert "four" in texts[3]
    assert len(texts) == 5


def test_lines_that_are_too_long_are_dropped_and_no_more(tigon, folder, tmp_path):
    model, _ = folder(gpt2)
    with (tmp_path / "lines.jsonl").open("w") as file:
        file.write('{"text": "a"}\n{"text": "')
        for _ in range(66):
            file.write("x" * (1 << 20))
        file.write('"}\n{"text": "b"}\n')
    said = tigon("tokenize", tmp_path / "lines.jsonl", "--tokenizer", model, "--output", tmp_path / "t.bin").stdout
    assert f"dropped 1 line: the line is longer than 64 MiB ({tmp_path / 'lines.jsonl'}:2)" in said
    assert len(Tokens(tmp_path / "t.bin").starts) == 2


def test_no_line_speaks_to_the_terminal(tigon, folder, tmp_path):
    model, _ = folder(gpt2)
    roles = ["\x1b[2J" + "x" * 1000, "é"]
    samples = [{"messages": [{"role": role, "content": "a"}, {"role": "assistant", "content": "b"}]} for role in roles]
    lines = write_lines(tmp_path / "lines.jsonl", [*samples, {"text": "a"}])
    said = tigon("tokenize", lines, "--tokenizer", model, "--template", "chatml", "--output", tmp_path / "t.bin").stdout
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) < 400
    assert "got é" in said


def test_bytes_do_not_depend_on_threads(tigon, folder, tmp_path):
    """Several pieces of each kind, and a text that is cut."""
    model, theirs = folder(gpt2)
    text = AUSTEN + AUSTEN[::-1]
    (tmp_path / "book.txt").write_text(text)
    lines = write_lines(tmp_path / "lines.jsonl", [{"text": line} for line in AUSTEN.split("\n") if line])
    for threads in (1, 2, 5):
        tigon("tokenize", lines, tmp_path / "book.txt", lines, "--tokenizer", model, "--threads", threads,
              "--output", tmp_path / f"{threads}.bin")  # fmt: skip
    bytes_ = (tmp_path / "1.bin").read_bytes()
    assert bytes_ == (tmp_path / "2.bin").read_bytes() == (tmp_path / "5.bin").read_bytes()
    documents = Tokens(tmp_path / "1.bin").documents()
    count = sum(1 for line in AUSTEN.split("\n") if line)
    assert len(documents) == 2 * count + 1
    assert documents[:count] == documents[count + 1 :]
    assert theirs.decode(documents[count][0][:-1], clean_up_tokenization_spaces=False) == text


def test_what_was_stopped_goes_on(tigon, folder, tmp_path):
    """By Ctrl-C in a text and in lines: the bytes are those of a run that nobody stopped."""
    model, _ = folder(gpt2)
    (tmp_path / "book.txt").write_text(AUSTEN * 2)
    samples = [{"text": line} if len(line) % 50 else "{" for line in AUSTEN.split("\n") if line]
    lines = write_lines(tmp_path / "lines.jsonl", [*samples, {"prompt": "a", "completion": "b"}] * 5)
    output = tmp_path / "tokens.bin"
    words = ["tokenize", tmp_path / "book.txt", lines, "--tokenizer", model, "--threads", 1, "--output", output]
    whole = tigon(*words).stdout.splitlines()
    expected = output.read_bytes()
    output.unlink()

    def stopped(after, by):
        process = subprocess.Popen(
            [PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(after):
            process.stderr.readline()
        process.send_signal(by)
        said, _ = process.communicate()
        return process.returncode, said

    left = ["tokens.bin.documents", "tokens.bin.part", "tokens.bin.resume"]
    for _ in range(2):
        code, said = stopped(1, signal.SIGINT)
        assert code == 130
        assert "the same command goes on from there" in said
        assert sorted(path.name for path in tmp_path.glob("tokens.bin*")) == left
    code, _ = stopped(1, signal.SIGKILL)
    assert code == -9
    with (tmp_path / "tokens.bin.part").open() as file:  # another run
        fcntl.flock(file, fcntl.LOCK_EX)
        busy = tigon(*words, check=False)
        assert busy.returncode == 2
        assert "another run is writing this file" in busy.stderr
    rest = tigon(*words).stdout.splitlines()
    assert "were done by an earlier run" in rest[-1]
    assert rest[:-1] == whole[:-1]
    assert output.read_bytes() == expected
    assert [path.name for path in tmp_path.glob("tokens.bin*")] == ["tokens.bin"]
    # Of other words nothing is gone on with.
    output.unlink()
    stopped(1, signal.SIGINT)
    words += ["--end-of-text", "none"]
    assert "earlier run" not in tigon(*words).stdout


def test_errors_leave_nothing(tigon, folder, tmp_path):
    model, _ = folder(gpt2)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "a.json").write_text("[]")
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b")
    write_lines(tmp_path / "none.jsonl", ["{"])
    output = tmp_path / "tokens.bin"

    def refused(*words):
        result = tigon("tokenize", *words, "--output", output, check=False)
        assert result.returncode != 0
        assert not list(tmp_path.glob("tokens.bin*"))
        return result.stderr

    same = tigon("tokenize", tmp_path / "a.txt", "--tokenizer", model, "--output", tmp_path / "a.txt", check=False)
    assert same.returncode == 2
    assert "take the place of an input" in same.stderr
    assert (tmp_path / "a.txt").read_text() == "a"
    assert "jq" in refused(tmp_path / "a.json", "--tokenizer", model)
    assert "gzip" in refused(tmp_path / "a.gz", "--tokenizer", model)
    assert "nothing is left" in refused(tmp_path / "none.jsonl", "--tokenizer", model)
    assert "no such token" in refused(tmp_path / "a.txt", "--tokenizer", model, "--end-of-text", "<nothing>")
    assert "chatml, qwen2" in refused(tmp_path / "a.txt", "--tokenizer", model, "--template", "x")
    chat = write_lines(tmp_path / "chat.jsonl", [{"messages": [{"role": "user", "content": "a"}]}])
    said = refused(chat, "--tokenizer", model)
    assert "--template" in said
    assert "chatml, qwen2" in said
    (model / "tokenizer_config.json").unlink()
    assert "names no eos_token" in refused(tmp_path / "a.txt", "--tokenizer", model)
    tigon("tokenize", tmp_path / "a.txt", "--tokenizer", model, "--end-of-text", "none", "--output", output)
    assert len(Tokens(output).ids) == 1


@pytest.mark.parametrize(
    ("vocab", "text"), [(259, "austen"), (1500, "austen"), (6000, "austen"), (5000, "others"), (600, "aaa")]
)
def test_a_tokenizer_that_is_trained(vocab, text, tigon, tmp_path):
    """The same vocabulary and merges as those of `tokenizers`, to the last one, and a file that it loads."""
    texts = {"austen": AUSTEN[:500_000], "others": OTHERS * 2, "aaa": "aaaaaaa ababab abcabc " * 5 + "aaaa" * 9}
    (tmp_path / "text.txt").write_text(texts[text])
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    theirs.train_from_iterator([texts[text]], trainer)
    tigon(
        "tokenize",
        tmp_path / "text.txt",
        "--train-bpe",
        vocab,
        "--tokenizer",
        tmp_path / "new",
        "--output",
        tmp_path / "t.bin",
    )
    ours = Tokenizer.from_file(str(tmp_path / "new" / "tokenizer.json"))
    a, b = (json.loads(tokenizer.to_str()) for tokenizer in (ours, theirs))
    assert a["model"]["merges"] == b["model"]["merges"]
    assert a["model"]["vocab"] == b["model"]["vocab"]
    assert a["added_tokens"] == b["added_tokens"]
    ((ids, _),) = Tokens(tmp_path / "t.bin").documents()
    assert ids == [*theirs.encode(texts[text]).ids, 0]
    assert ours.decode(ids, skip_special_tokens=True) == texts[text]


def test_a_tokenizer_of_lines(tigon, tmp_path):
    """All kinds of lines count, by any number of threads; no tokenizer is written over."""
    samples = [{"text": "one two three"}, {"prompt": "four ", "completion": "five"}, "{",
               {"messages": [{"role": "user", "content": "six"}, {"role": "assistant", "content": "seven"}]}]  # fmt: skip
    lines = write_lines(tmp_path / "lines.jsonl", samples * 3000)
    for threads in (1, 3):
        tigon("tokenize", lines, "--train-bpe", 400, "--tokenizer", tmp_path / f"new{threads}", "--output",
              tmp_path / "t.bin", "--template", "chatml", "--threads", threads)  # fmt: skip
    file = (tmp_path / "new1" / "tokenizer.json").read_text()
    assert file == (tmp_path / "new3" / "tokenizer.json").read_text()
    vocabulary = json.loads(file)["model"]["vocab"]
    assert {"one", "Ġthree", "Ġfive", "six", "seven"} <= vocabulary.keys()
    again = tigon("tokenize", lines, "--train-bpe", 400, "--tokenizer", tmp_path / "new1", "--output", tmp_path / "t.bin",
                  check=False)  # fmt: skip
    assert again.returncode == 2
    assert "there is a tokenizer already" in again.stderr
    assert "without --train-bpe" in again.stderr
    (tmp_path / "new1" / "tokenizer.json").unlink()  # a folder with tokenizer.model, say
    config = (tmp_path / "new1" / "tokenizer_config.json").read_text()
    again = tigon("tokenize", lines, "--train-bpe", 500, "--tokenizer", tmp_path / "new1", "--output", tmp_path / "t.bin",
                  check=False)  # fmt: skip
    assert again.returncode == 2
    assert (tmp_path / "new1" / "tokenizer_config.json").read_text() == config


def test_trains_on_it(tigon, folder, tmp_path):
    """A run takes the mask: with answers that are one token, and nothing else learnt, the loss goes to zero."""
    model, theirs = folder(*TEMPLATES["chatml"])
    chats = [
        [{"role": "user", "content": AUSTEN[i : i + 40]}, {"role": "assistant", "content": "x"}] for i in range(300)
    ]
    lines = write_lines(tmp_path / "chats.jsonl", [{"messages": chat} for chat in chats])
    tigon("tokenize", lines, "--tokenizer", model, "--output", tmp_path / "tokens.bin")
    shape = {"model_type": "llama", "vocab_size": len(theirs), "hidden_size": 32, "intermediate_size": 48,
             "num_hidden_layers": 1, "num_attention_heads": 2}  # fmt: skip
    (model / "config.json").write_text(json.dumps(shape))
    log = tmp_path / "log.jsonl"
    tigon("train", "--model", model, "--data", tmp_path / "tokens.bin", "--seq", 64, "--batch", 4, "--steps", 40,
          "--lr", 1e-2, "--log", log)  # fmt: skip
    losses = [line["loss"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
    assert losses[0] > 5
    assert losses[-1] < 0.5

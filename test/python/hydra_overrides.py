"""Write test/fixtures/hydra-overrides.json: overrides, YAML texts and defaults lists, with what Hydra makes of them.

    pip install hydra-core==1.3.8
    python test/python/hydra_overrides.py > test/fixtures/hydra-overrides.json

An override is read by Hydra's own parser, a YAML text by OmegaConf. Numbers that JSON does not have are written as
{"$number": "inf"}; what Hydra refuses, or takes for several runs, has the key "refused" instead of "value".
"""

import json
import math
import os
import pathlib
import sys
import tempfile

import hydra
import omegaconf
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

BARE = """
0 1 -1 +1 007 08 10 1_000 1__0 _1 1_ 0x10 0b1 1e3 1E3 1e-5 1e+5 -1e-5 1.5e3 .5 5. 0. -.5 1.0 1_0.0_1 1e 1e+ e5 .e5 . -
inf Inf INF -inf +inf .inf nan NaN NAN -nan .nan infinity
true True TRUE tRuE false False FALSE yes no on off y n null Null NULL nULL none None ~ nil
a A abc a_b a-b a.b a/b /a /a/b ~/data/train.parquet ./a ../a a/ a// a~b ?? ??? a?b a* *.parquet a@b @a a+b +a a%b 50%
a|b a:b a: :a a::b http://host:80/x?y=1&z=2 https://a.b/c a=b =a a==b a=b=c $a a$b $ # a#b ! a!b a;b a&b a^b a`b a<b a>b
\\\\ a\\\\b C:\\\\dir \\\\n 1.2.3 1-2 1/2 v1.0 2024-01-01 12:30 12:30:45 1:2 1e5a 1a a1 0a 00 -0 +0 -0.0 0.0 1.e5 +.5 1e-05
Qwen/Qwen2.5-0.5B-Instruct deepseek-ai/deepseek-llm-7b-chat google/gemma-2-2b-it hdfs://host/path s3://bucket/key
all-linear .*visual.* ^model\\\\.layers low_var_kl seq-mean-token-sum fsdp2 after_each_epoch ${a} ${a.b} ${oc.env:HOME}
${oc.env:HOME,x} ${oc.select:a,b} ${a}/${b} x${a}y ${.a} ${..a} ${a[0]} ${a:b} ${a:${b}} ${oc.env:A,'x y'} ${ ${a
é ünïcode 日本 naïve/模型 🙂 a\u00a0b
""".replace("\\\\", "\\").split()

SPACED = [
    "a b", " a", "a ", " a b ", "a  b", "1 2", "true false", "null null", "a 1", "a: b", "a :b", "1 ", " 1", "\t1", "a\tb",
    "${a} b", "a ${b} c", "~ a", "x = y", "", " ",
]

QUOTED = [
    "''", '""', "'a'", '"a"', "'a b'", '"a b"', "' a '", "'1'", '"1"', "'true'", "'null'", "'a,b'", '"a,b"', "'[1,2]'",
    "'{a:1}'", "'a:b'", "'a=b'", "'${a}'", "\"${a}\"", "'it\\'s'", '"it\'s"', '"say \\"hi\\""', "'say \"hi\"'", "'a\\\\'",
    "'a\\\\\\'b'", "'a\\nb'", "'a\\tb'", "'C:\\dir'", "'\\'", "'open", '"open', "open'", "a'b", "a'b'c", "'a'b", "a 'b'",
    "'a' 'b'", "'a''b'", "'\\\\\\\\'", "'#'", "'a # b'", "'é'", "'(a)'", "'\t'", "'???'",
]

ESCAPED = [
    "a\\,b", "a\\ b", "\\ a", "a\\ ", "a\\:b", "a\\=b", "\\[a\\]", "\\{a\\}", "\\(a\\)", "a\\(b\\)", "\\\\", "a\\\\b", "\\,",
    "a\\'b", "\\'a\\'", "a\\\"b", "\\$a", "\\${a}", "a\\nb", "\\t", "[a\\,b]", "[\\[a\\]]", "{a: b\\,c}", "{a\\:b: 1}",
]

LISTS = [
    "[]", "[ ]", "[1]", "[ 1 ]", "[1,2]", "[1, 2]", "[ 1 , 2 ]", "[1,2,]", "[,]", "[,1]", "[1,,2]", "[a,b]", "[a, b c, d]",
    "['a','b']", "[\"a\",\"b\"]", "['a', \"b\", c]", "[true,null,1.5,-inf]", "[[1,2],[3]]", "[[]]", "[[],[]]", "[{}]",
    "[{a:1},{b:2}]", "[a:b]", "[a=b]", "[a/b, ~/c.parquet]", "[${a},${b.c}]", "[${oc.env:A,b},c]", "[1", "1]", "[1]]", "[[1]",
    "[1 2]", "[1][2]", "['a' 'b']", "['a]", "[ ' a ' ]", "['~/data/a.parquet', '~/data/b.parquet']", "[console,wandb]",
    "[model,optimizer,extra]", "[0.9,0.999]", "[question]", "[1e-3,1E-3]", "[a\\,b,c]", "[-1]", "[null]", "['']", "[]a",
    "[ a b , c ]", "[(a)]", "[1:2]", "[.*visual.*]", "[???]",
]

DICTS = [
    "{}", "{ }", "{a:1}", "{a: 1}", "{ a : 1 }", "{a:1,b:2}", "{a: 1, b: 2}", "{a:}", "{a}", "{:1}", "{a:1,}", "{,}",
    "{a:1 b:2}", "{a:{b:{c:1}}}", "{a:[1,2],b:{}}", "{'a b':1}", "{\"a\":'b'}", "{a b:1}", "{a.b:1}", "{a/b:1}", "{a-b:1}",
    "{1:a}", "{1.5:a}", "{true:a}", "{null:a}", "{a:b:c}", "{a: b c}", "{a: x=y}", "{a=1}", "{a:${b}}", "{${a}:1}", "{a:1",
    "a:1}", "{a:1}}", "{a:1}b", "{a:'x,y'}", "{a:true,b:null,c:1e-5}", "{enable_thinking:False}", "{enable_thinking: false}",
    "{a:1,a:2}", "{vllm: {disable_mm_preprocessor_cache: True}}", "{a: http://h:1/p}", "{a: ~/b}", "{a:-1}", "{a:''}",
    "{'':1}", "{a@b:1}", "{a: .*visual.*}", "{a?:1}", "{a+b:1}",
]

SWEEPS = [
    "1,2", "a,b", "a, b", "[1],[2]", "'a','b'", "{a:1},{b:2}", "a,", ",a", ",", "choice(1,2)", "choice(a)", "range(1,4)",
    "range(4)", "interval(0,1)", "glob(*)", "glob([a*])", "tag(a,1)", "sort(3,1,2)", "sort([3,1,2])", "shuffle(1,2)",
    "int(3)", "int(3.7)", "int('3')", "float(3)", "str(3)", "str([1,2])", "bool(1)", "bool(true)", "json_str({a:1})",
    "extend_list(1)", "int(a)", "foo(1)", "foo(a)", "foo()", "(a)", "a(b)", "a(b", "a)b", "f(x)(y)",
]

KEYS = [
    "a=1", "a.b=1", "a.b.c.d=1", "+a=1", "++a=1", "+a.b={c:1}", "++a.b=[1]", "~a", "~a=1", "~a.b", "~a.b=x", "~a=[1]", "~a=",
    "a/b=c", "a/b/c=d", "a@b=c", "a/b@c.d=e", "+a/b@_global_=c", "a-b=1", "a_b=1", "a1=1", "1a=1", "1=1", "a.0=1", "a.0.b=1",
    "a[0]=1", "a.b[0].c=1", "$a=1", "a$=1", "_a=1", "a.=1", ".a=1", "a..b=1", "=1", "+=1", "~", "+", "", " ", "a", "a.b", " a=1",
    "a =1", "a= 1", "a = 1", "+ a=1", "~ a", "+~a=1", "~+a=1", "+++a=1", "a:b=1", "a b=1", "a,b=1", "'a'=1", "[a]=1", "{a}=1",
    "a==1", "-a=1", "--a=1", "a-=1", "a+=1", "é=1", "a.é=1", "a\t=1", "@a=1", "a@=1", "~a@b", "hydra.run.dir=x", "a.class=1",
    "a.null=1", "null=1", "true.a=1", "a*=1", "a?=1", "${a}=1",
]

YAMLS = [
    "a: 1", "a: 01", "a: 010", "a: 0o10", "a: 0x1f", "a: 0b11", "a: 1_000", "a: +1", "a: -1", "a: 1.0", "a: .5", "a: 5.", "a: 1e3",
    "a: 1e-5", "a: 1E5", "a: 1.5e3", "a: 1.5e+3", "a: 1e5a", "a: .inf", "a: -.inf", "a: inf", "a: .nan", "a: nan", "a: yes",
    "a: no", "a: Yes", "a: NO", "a: on", "a: off", "a: y", "a: n", "a: true", "a: True", "a: TRUE", "a: tRue", "a: null",
    "a: Null", "a: ~", "a:", "a: none", "a: None", "a: 12:30", "a: 12:30:45", "a: 190:20:30.15", "a: 2024-01-01",
    "a: 2024-01-01T00:00:00Z", "a: ???", "a: ${b}\nb: 1", "a: '${b}'\nb: 1", "a: \"${b}\"\nb: [1]", "a: x${b}\nb: 1",
    "a: x${b}\nb: true", "a: x${b}\nb: null", "a: x${b}\nb: 1.0", "a: x${b}\nb: 1.0e-05", "a: ${b.c}\nb: {c: {d: 1}}",
    "a: ${oc.select:b,1}", "a: ${oc.select:b,null}", "a: ${oc.select:b}", "a: ${oc.select:b, x y}", "a: ${oc.select:b,${c}}\nc: 2",
    "a: ${oc.select:b.c,'x,y'}", "a: ${oc.select:b,[1,2]}", "a: ${oc.select:b,1}\nb: 2", "a: ${oc.select:b,1}\nb: null",
    "a: ${oc.select:b,1}\nb: ???", "a: ${oc.env:NOT_SET,1}", "a: ${oc.env:NOT_SET,x}", "a: ${oc.env:NOT_SET,null}",
    "a: ${oc.env:NOT_SET}", "a: ${oc.env:TRAINYARD_SET}", "a: ${oc.env:TRAINYARD_NUMBER}",
    "a: ${oc.decode:'1'}", "a: ${oc.decode:${oc.env:TRAINYARD_NUMBER}}", "a: ${oc.decode:null}", "a: ${oc.decode:'[1,x]'}",
    "a:\n  b: ${.c}\n  c: 1", "a:\n  b: ${..c}\nc: 2", "a:\n  b: ${.c.d}\n  c: {d: 3}", "a: ${b[0]}\nb: [7]", "a: ${b.1}\nb: [7, 8]",
    "a: ${b}\nb: ${a}", "a: ${b}", "a: ${b:c}", "a: \\${b}", "a: '\\${b}'", "a: [1, '${b}']\nb: 2", "a: {x: '${b}'}\nb: 2",
    "a: ${b}${c}\nb: 1\nc: 2", "a: ${ b }\nb: 1", "a: ${b", "a: &x 1\nb: *x", "a: &x {c: 1}\nb: {<<: *x, d: 2}", "a: |\n  x\n  y\n",
    "a: >\n  x\n  y\n", "a: 'x: y'", "a: x:y", "a: x #c", "a: x#c", "a: 1\na: 2", "a: [1, 2", "a: {b: 1", "a: 'x", "a: b: c",
    "\ta: 1", "a: @x", "a: %x", "a: `x", "- a", "1", "", "# only a comment", "a: !!str 1", "a: !!int '1'", "1: x", "true: x",
    "a.b: 1", "a: =", "a: <<", "? a\n: 1", "---\na: 1", "a: 1\n---\nb: 2", "a: é", "a: 1,2", "a: [a, b c]", "a: [1,2,]",
]

# Folders of config files; the config is `run.yaml`, and what a name stands for is told by the value of its key.
SOME = {
    "base.yaml": "a: {x: base, y: base}\n",
    "other.yaml": "defaults: [base]\na: {x: other}\n",
    "g/one.yaml": "x: one\n",
    "g/two.yaml": "y: two\n",
    "g/h/deep.yaml": "z: deep\n",
    "g/up.yaml": "defaults: [one]\ny: up\n",
    "g/with.yaml": "defaults: [{h: deep}]\ny: with\n",
    "g/root.yaml": "defaults: [{/k: kay}]\ny: root\n",
    "k/kay.yaml": "w: kay\n",
    "all/global.yaml": "# @package _global_\nb: {v: global}\n",
    "all/moved.yaml": "# @package c.d\nv: moved\n",
}
RUNS = [
    "defaults: [base]\na: {x: self}\n", "defaults: [base, _self_]\na: {x: self}\n", "defaults: [_self_, base]\na: {x: self}\n",
    "defaults: [base.yaml]\n", "defaults: [other]\n", "defaults: [other, base]\n", "defaults: [{g: one}]\n", "defaults: [{g: one.yaml}]\n",
    "defaults: [{g: one}, _self_]\ng: {x: self}\n", "defaults: [g/one]\n", "defaults: [/g/one]\n", "defaults: [{g/h: deep}]\n", "defaults: [g/h/deep]\n",
    "defaults: [{g: up}]\n", "defaults: [{g: with}]\n", "defaults: [{g: root}]\n", "defaults: [{g: [one, two]}]\n", "defaults: [{g: null}]\na: 1\n",
    "defaults: [{g@a: one}]\n", "defaults: [{g@a.b: one}]\n", "defaults: [{g@_global_: one}]\n", "defaults: [{g@_here_: one}]\n",
    "defaults: [{g@_global_.q: one}]\n", "defaults: [{g@a: one}, {g@b: two}]\n", "defaults: [g/one@q]\n", "defaults: [base@q]\n",
    "defaults: [{all: global}]\n", "defaults: [{all: moved}]\n",
    "defaults: [{optional g: none}]\na: 1\n", "defaults: [{optional g: one}]\n", "defaults: [optional none]\na: 1\n", "defaults: [{g: none}]\n", "defaults: [none]\n",
    "defaults: [{g: one}, {override g: two}]\n", "defaults: [{g: with}, {override g/h: deep}]\n", "defaults: [run]\n", "defaults: base\n",
    "defaults: [{g: one, k: kay}]\n", "defaults: [1]\n", "defaults: []\na: 1\n", "a: 1\n",
    "defaults: [{g: one}]\ng: {x: '${b}'}\nb: 7\n", "defaults: [{g: one}]\ng: null\n", "defaults: [{g: one}]\ng: 5\n", "defaults: [base]\na: [1]\n",
]

SET = {"TRAINYARD_SET": "x", "TRAINYARD_NUMBER": "5"}


def plain(value):
    """A value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): plain(item) for key, item in value.items()}
    return value


def read_override(text):
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return {"refused": "syntax"}
    if override.is_sweep_override():
        return {"refused": "sweep"}
    kinds = {"CHANGE": "set", "ADD": "set", "FORCE_ADD": "set", "DEL": "delete"}
    kind = kinds.get(override.type.name)
    if kind is None:
        return {"refused": override.type.name.lower()}
    value = override.value()
    given = {} if kind == "delete" and override._value is None and "=" not in text else {"value": plain(value)}
    return {"op": kind, "key": override.get_key_element().lstrip("+~"), **given}


def read_yaml(text):
    try:
        return {"value": plain(OmegaConf.to_container(OmegaConf.create(text), resolve=True))}
    except Exception:  # whatever it is, Hydra would stop here
        return {"refused": "yaml"}


def compose(run):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**SOME, "run.yaml": run}.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        try:
            with initialize_config_dir(folder, version_base=None):
                return {"value": plain(OmegaConf.to_container(hydra.compose("run"), resolve=True))}
        except Exception:  # whatever it is, Hydra would stop here
            return {"refused": "compose"}


def main():

    os.environ.update(SET)
    os.environ.pop("NOT_SET", None)
    values = list(dict.fromkeys([*BARE, *SPACED, *QUOTED, *ESCAPED, *LISTS, *DICTS, *SWEEPS]))
    overrides = {text: read_override(text) for text in dict.fromkeys([f"k={value}" for value in values] + KEYS)}
    result = {
        "versions": {"hydra": hydra.__version__, "omegaconf": omegaconf.__version__},
        "environment": SET,
        "overrides": overrides,
        "yaml": {text: read_yaml(text) for text in dict.fromkeys(YAMLS)},
        "files": SOME,
        "composed": {text: compose(text) for text in dict.fromkeys(RUNS)},
    }
    json.dump(result, sys.stdout, indent=0, ensure_ascii=False)
    sys.stdout.write("\n")


main()
